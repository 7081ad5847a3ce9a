# Flags that hold for every target, and where the results go.

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_compile_options(
  -Wall -Wextra -Werror=return-type
  # No path of this machine in the binaries, and short names in the messages of SMDDP_CHECK.
  "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/tf_ops/=" "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

# Some compilers link the C++ runtime statically. Its symbols stay inside then: locale::id objects that were shared with
# another copy of the runtime in the process (NumPy's, TensorFlow's) would index that copy's facets.
add_link_options(-Wl,--exclude-libs,libstdc++.a)

if(SMDDP_SANITIZE)
  add_compile_options(-fsanitize=${SMDDP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${SMDDP_SANITIZE})
endif()

if(SMDDP_DELAYS)
  add_compile_definitions(SMDDP_DELAYS)
endif()

# Everything the package needs ends up here; setup.py copies the whole folder.
set(SMDDP_OUTPUT_DIR ${CMAKE_BINARY_DIR}/package)

# The shared objects find each other beside themselves. libmpi and TensorFlow are in the process before they are
# loaded (smddp_tf/_native/loader.py), so there is no path to either.
function(smddp_place_output target)
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${SMDDP_OUTPUT_DIR}
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN")
endfunction()
