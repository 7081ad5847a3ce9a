# smddp_mpi: mpi.h and libmpi, both found by setup.py (tools/build_env.py) from one mpicc. Without SMDDP_MPI_LIBRARY, in
# the wheel, the engine needs no file of a certain name: it takes MPI's symbols from the process.

if(NOT SMDDP_MPI_INCLUDE_DIR)
  message(FATAL_ERROR "SMDDP_MPI_INCLUDE_DIR is not set. Build with `make build` or `pip install .`, which find MPI.")
endif()

add_library(smddp_mpi INTERFACE)
target_include_directories(smddp_mpi SYSTEM INTERFACE ${SMDDP_MPI_INCLUDE_DIR})
# Test programs call nothing that needs it, and what it loads (UCX) does not get on with sanitizers.
if(SMDDP_MPI_LIBRARY AND NOT SMDDP_NATIVE_TESTS)
  target_link_libraries(smddp_mpi INTERFACE ${SMDDP_MPI_LIBRARY} -Wl,--no-undefined)
endif()
target_compile_definitions(smddp_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

# smddp_core_other_mpi: the engine again, with another MPI's mpi.h: other_mpi/libsmddp_core.so. Only transport/mpi is
# compiled for it; all else is what smddp_core has.
function(smddp_core_for_other_mpi)
  get_target_property(sources transport_mpi_objects SOURCES)
  add_library(transport_other_mpi_objects OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(transport_other_mpi_objects SYSTEM PRIVATE ${SMDDP_OTHER_MPI_INCLUDE_DIR})
  target_compile_definitions(transport_other_mpi_objects PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(transport_other_mpi_objects PRIVATE transport_mpi)

  get_target_property(parts smddp_core LINK_LIBRARIES)
  list(REMOVE_ITEM parts transport_mpi_objects smddp_mpi)
  add_library(smddp_core_other_mpi SHARED EXCLUDE_FROM_ALL)
  target_link_libraries(smddp_core_other_mpi PRIVATE ${parts} transport_other_mpi_objects)
  set_target_properties(smddp_core_other_mpi PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME smddp_core
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/other_mpi)
endfunction()
