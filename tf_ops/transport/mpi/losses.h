// MPI that reports the loss of a process: Open MPI 5 with `mpi_ft_enable`, which its ULFM needs.
//
// The functions are looked up at run time, so that the library builds and works with any MPI. The launcher still ends
// the job when a process dies.
#pragma once

#include <mpi.h>

#include <vector>

namespace smddp {

// Call it before MPI_Init, and only where MPI uses TCP and shared memory: its other messaging layers (libfabric, UCX)
// crash if they are asked, and heartbeats alone find losses there. Where MPI can, the end of a connection becomes an
// error of the calls that use it. Without this Open MPI 5 ends the process at once (exit code 14), before it can report
// which rank has died.
void AskMpiToReportLosses();

// Where MPI reports losses: is it an error that means that a process has died or that a rank has revoked the
// communicator?
bool MeansLoss(int code);
// The members of `comm` that are known to be dead, by their ranks in it. Afterwards calls that concern all of `comm`
// (a probe of any source) work again.
std::vector<int> TakeLosses(MPI_Comm comm);

}  // namespace smddp
