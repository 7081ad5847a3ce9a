// From MPI's error codes to Status.
#pragma once

#include <mpi.h>

#include "core/status.h"

namespace smddp {

Status MpiStatus(int code, const char* call);

}  // namespace smddp

#define SMDDP_MPI(call) SMDDP_RETURN_IF_ERROR(::smddp::MpiStatus((call), #call))
