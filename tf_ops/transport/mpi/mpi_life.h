// MPI's life cycle in this process.
#pragma once

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Makes sure that MPI is initialised with full thread support; initialises it if needed. `silence_s`: after this time
// without a sign of life a rank counts as dead, where MPI survives losses (survival.h); 0: never.
Status InitializeMpi(double silence_s, const Deadline& deadline);

// A rank is lost or ends on its own, so MPI_Finalize would not return: the process ends without it, with an exit code
// other than 0.
void AbandonMpi();
void ReturnToMpi();  // undoes it when a new session has begun
bool MpiIsAbandoned();
bool MpiEndsAtExit();  // with the process, because this library has initialised it

bool MpiIsInitialized();
// This process ends a moment after the others have finalised MPI: the first process that ends determines the job's
// exit code.
void MpiEndLast();
bool MpiHasThreadMultiple();
bool MpiGoesOnAfterLosses();
const char* MpiVersionText();

}  // namespace smddp
