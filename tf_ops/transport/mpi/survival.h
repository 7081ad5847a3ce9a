// MPI that goes on after the loss of a process: the calls of ULFM, in Open MPI 5 under `mpirun --with-ft ulfm`.
//
// They are looked up when the program runs, so that any other MPI library builds and works. There SurvivesLosses() is
// false, the launcher ends the job when a process dies, and none of the others may be called.
#pragma once

#include <mpi.h>

#include <vector>

#include "core/status.h"

namespace smddp {

bool SurvivesLosses();
// Before MPI_Init: where MPI can, the end of a connection is an error of the calls that need it. Without this Open MPI
// 5 ends the process at once (exit code 14), before it can say who has died. The launcher still ends the job.
void AskMpiToReportLosses();
// Before MPI_Init: MPI finds by itself who is silent for so long. The launcher tells of processes that a signal ended,
// but neither of those that ended with a code other than 0, nor of hosts that are gone.
void AskMpiToDetectLosses(double silence_s);
// After MPI_Init: a thread that lives as long as the process, and in which MPI shows the others that this one lives,
// also while nobody here calls it. (Open MPI 5.0.11 can have a thread of its own for that, but then MPI_Init crashes
// now and then: it speaks to ranks that are not ready to listen.)
void ShowMpiLife(double silence_s);

// An error of a call that means, where MPI reports losses: a process has died, or a rank has revoked the communicator.
bool MeansLoss(int code);
// The members of `comm` whose death is known here, by their ranks. From now on calls that concern anybody of `comm`
// (a probe of any source) work again.
std::vector<int> TakeLosses(MPI_Comm comm);

// The members of `comm` that are alive, in its order. Collective over these; waits for them.
Result<MPI_Comm> Survivors(MPI_Comm comm);
// Ends every call on `comm`, on every rank, with an error.
void Revoke(MPI_Comm comm);
// Bitwise and of what every living member brings. Collective; works on a revoked communicator. `*lost`: somebody has
// died whom not everybody knew of; the same on all.
Result<int> Agree(MPI_Comm comm, int mine, bool* lost);

}  // namespace smddp
