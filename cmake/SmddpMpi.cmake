# smddp_mpi: mpi.h and libmpi, both found by setup.py (tools/build_env.py) from one mpicc.

foreach(variable IN ITEMS SMDDP_MPI_INCLUDE_DIR SMDDP_MPI_LIBRARY)
  if(NOT ${variable})
    message(FATAL_ERROR "${variable} is not set. Build with `make build` or `pip install .`, which find MPI.")
  endif()
endforeach()

add_library(smddp_mpi INTERFACE)
target_include_directories(smddp_mpi SYSTEM INTERFACE ${SMDDP_MPI_INCLUDE_DIR})
# Test programs call nothing that needs it, and what it loads (UCX) does not get on with sanitizers.
if(NOT SMDDP_NATIVE_TESTS)
  target_link_libraries(smddp_mpi INTERFACE ${SMDDP_MPI_LIBRARY})
endif()
target_compile_definitions(smddp_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
