# libsmddp_mpi.so: transport/mpi, which is loaded where MPI started the process. mpi.h and libmpi are found by setup.py
# (tools/build_env.py) from one mpicc. Without SMDDP_MPI_LIBRARY, in the wheel, it needs no file of a certain name: it
# takes MPI's symbols from the process.

# smddp_mpi_library(<target> <folder of mpi.h> [<libmpi.so.N>])
function(smddp_mpi_library target include_dir)
  if(NOT include_dir)
    message(FATAL_ERROR "SMDDP_MPI_INCLUDE_DIR is not set. Build with `make build` or `pip install .`, which find MPI.")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tf_ops/transport/mpi/*.cc)
  set(root ${CMAKE_BINARY_DIR}/include/transport_mpi)
  smddp_link_headers(${root} transport/mpi)
  add_library(${target} SHARED ${sources})
  target_include_directories(${target} PRIVATE ${root})
  target_include_directories(${target} SYSTEM PRIVATE ${include_dir})
  target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(${target} PRIVATE transport smddp_core Threads::Threads ${CMAKE_DL_LIBS})
  if(ARGN)
    target_link_libraries(${target} PRIVATE ${ARGN} -Wl,--no-undefined)
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX CXX_VISIBILITY_PRESET hidden)
endfunction()
