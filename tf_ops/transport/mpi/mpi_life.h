// MPI's life cycle in this process.
#pragma once

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Makes sure that MPI runs, with full thread support; initialises it when nobody has. `silence_s`: of a rank, after
// which it counts as dead where MPI goes on after losses (survival.h); 0: never.
Status InitializeMpi(double silence_s, const Deadline& deadline);

// A rank is lost or ends by itself, so MPI_Finalize would not return: the process ends without it, and not with 0.
void AbandonMpi();
void ReturnToMpi();  // a new session has begun: undoes it
bool MpiIsAbandoned();

bool MpiIsInitialized();
// This process ends a moment after the others have finalised MPI: the first one that goes gives the job its exit code.
void MpiEndLast();
bool MpiHasThreadMultiple();
bool MpiGoesOnAfterLosses();
const char* MpiVersionText();

}  // namespace smddp
