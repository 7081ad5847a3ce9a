# One folder of tf_ops/ = one target with its own include rights.
#
# All includes are written "folder/file.h". A plain -Itf_ops would let every file include every other, so each folder
# has an include root of its own, build/include/<target>/, that holds links to this folder's headers and to nothing
# else. A target sees its own root and those of the targets in USES; a forbidden include does not compile.
#
#   smddp_folder(<target>       e.g. transport_mpi
#     [FOLDER <path>]           below tf_ops/; the target's name unless given, e.g. transport/mpi
#     [USES <target>...]        folders this one's headers and sources may include
#     [PRIVATE_USES <target>...]   folders only its sources may include; not passed on
#     [SUBFOLDERS <name>...])   folders below that belong to this target
#
# Makes the interface library <target> (include rights, to be named in USES) and, where there are sources, the object
# library <target>_objects, which becomes part of libsmddp_core.so where that is built.

# Links every header of tf_ops/<folder> into <root>/<folder>/.
function(smddp_link_headers root folder)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tf_ops/${folder}/*.h
       ${CMAKE_SOURCE_DIR}/tf_ops/${folder}/*.inc)
  file(MAKE_DIRECTORY ${root}/${folder})
  foreach(header IN LISTS headers)
    get_filename_component(name ${header} NAME)
    file(CREATE_LINK ${header} ${root}/${folder}/${name} SYMBOLIC)
  endforeach()
endfunction()

function(smddp_folder target)
  cmake_parse_arguments(ARG "" "FOLDER" "USES;PRIVATE_USES;SUBFOLDERS" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${target})
  endif()

  set(root ${CMAKE_BINARY_DIR}/include/${target})
  file(REMOVE_RECURSE ${root})
  list(TRANSFORM ARG_SUBFOLDERS PREPEND ${ARG_FOLDER}/)
  set(sources)
  foreach(folder IN LISTS ARG_FOLDER ARG_SUBFOLDERS)
    smddp_link_headers(${root} ${folder})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tf_ops/${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()

  add_library(${target} INTERFACE)
  target_include_directories(${target} INTERFACE ${root})
  target_link_libraries(${target} INTERFACE ${ARG_USES})

  if(sources AND NOT SMDDP_ENGINE)
    add_library(${target}_objects OBJECT ${sources})
    target_link_libraries(${target}_objects PRIVATE ${target} ${ARG_PRIVATE_USES})
    target_link_libraries(smddp_core PRIVATE ${target}_objects)
  endif()
endfunction()
