// MPI's life cycle in this process, and its errors as Status.
#pragma once

#include <mpi.h>

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Makes sure that MPI is initialised with full thread support; initialises it if needed.
Status InitializeMpi(const Deadline& deadline);

// As MpiLibrary::Abandon.
void AbandonMpi();
void ReturnToMpi();  // undoes it when a new session has begun

// From an error code of `call`.
Status MpiStatus(int code, const char* call);

}  // namespace smddp

#define SMDDP_MPI(call) SMDDP_RETURN_IF_ERROR(::smddp::MpiStatus((call), #call))
