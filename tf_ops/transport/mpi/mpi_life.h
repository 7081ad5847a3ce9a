// MPI's life cycle in this process.
#pragma once

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Makes sure that MPI is initialised with full thread support; initialises it if needed.
Status InitializeMpi(const Deadline& deadline);

// As MpiLibrary::Abandon.
void AbandonMpi();
void ReturnToMpi();  // undoes it when a new session has begun

}  // namespace smddp
