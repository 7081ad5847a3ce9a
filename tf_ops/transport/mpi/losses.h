// MPI that continues after the loss of a process: ULFM, in Open MPI 5 under `mpirun --with-ft ulfm`.
//
// The functions are looked up at run time, so that the library builds and works with any MPI. Without ULFM
// SurvivesLosses() is false, the launcher ends the job when a process dies, and no other function of this file may be
// called.
#pragma once

#include <mpi.h>

#include <vector>

#include "core/status.h"

namespace smddp {

bool SurvivesLosses();
// Call it before MPI_Init. Where MPI can, the end of a connection becomes an error of the calls that use it. Without
// this Open MPI 5 ends the process at once (exit code 14), before it can report which rank has died. The launcher
// still ends the job. Only over TCP and shared memory: its other messaging layers (libfabric, UCX) crash if they are
// asked, and heartbeats alone find losses there.
void AskMpiToReportLosses();
// Call it before MPI_Init. MPI itself then detects ranks that are silent for this long. The launcher reports
// processes ended by a signal, but not those that ended with an exit code other than 0, nor lost hosts.
void AskMpiToDetectLosses(double silence_s);
// Call it after MPI_Init. Starts a thread that lives as long as the process and lets MPI send its own heartbeats,
// also while this process makes no MPI call. (Open MPI 5.0.11 can run its own thread for that, but then MPI_Init
// sometimes crashes: it sends to ranks that are not ready to receive.)
void ShowMpiLife(double silence_s);

// Where MPI reports losses: is it an error that means that a process has died or that a rank has revoked the
// communicator?
bool MeansLoss(int code);
// The members of `comm` that are known to be dead, by their ranks in it. Afterwards calls that concern all of `comm`
// (a probe of any source) work again.
std::vector<int> TakeLosses(MPI_Comm comm);

// The members of `comm` that are alive, in its order. Collective over these; waits for them.
Result<MPI_Comm> Survivors(MPI_Comm comm);
// Ends every call on `comm`, on every rank, with an error.
void Revoke(MPI_Comm comm);
// Bitwise "and" of the values of all living members. Collective; works on a revoked communicator. `*lost`: a member
// has died whose death not all members knew; the same on all.
Result<int> Agree(MPI_Comm comm, int mine, bool* lost);

}  // namespace smddp
