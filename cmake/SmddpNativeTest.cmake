# For tests of the engine from inside.
#
#   smddp_inside      link it to use the engine; may include every folder's headers, and those below tests/
#   smddp_native_test(<name> <source>...)   a program, with ranks as threads (tests/inproc)

set(smddp_inside_folders
  runtime_session transport_tcp fusion collectives compute compute_cpu device transport transport_shm topology core)
add_library(smddp_inside INTERFACE)
target_include_directories(smddp_inside INTERFACE ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(smddp_inside INTERFACE smddp_core ${smddp_inside_folders})

function(smddp_native_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE smddp_inproc smddp_inside)
endfunction()
