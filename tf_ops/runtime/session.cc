#include "runtime/session.h"

namespace smddp {

Status NotInitialized() {
  return Status(Code::kFailedPrecondition, "Horovod has not been initialized; use hvd.init().");
}

}  // namespace smddp
