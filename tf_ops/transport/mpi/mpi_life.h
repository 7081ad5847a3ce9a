// MPI's life cycle in this process.
#pragma once

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Makes sure that MPI is initialised with full thread support; initialises it if needed. `silence_s`: after this time
// without a sign of life a rank counts as dead, where MPI survives losses (survival.h); 0: never.
Status InitializeMpi(double silence_s, const Deadline& deadline);

// As MpiLibrary::Abandon.
void AbandonMpi();
void ReturnToMpi();  // undoes it when a new session has begun

}  // namespace smddp
