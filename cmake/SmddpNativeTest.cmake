# Programs that test the engine from inside. They may include every folder's headers.
#
#   smddp_native_test(<name> <source>...)

function(smddp_native_test name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE
    smddp_core runtime fusion collectives compute compute_cpu transport transport_inproc transport_shm topology core)
endfunction()
