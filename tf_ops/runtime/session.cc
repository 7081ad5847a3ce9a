#include "runtime/session.h"

#include "core/forked.h"

namespace smddp {

Status NotInitialized() {
  if (IsFork()) {
    return Status(Code::kFailedPrecondition,
                  "This process was forked from one that had called hvd.init(). The session is its parent's, and here "
                  "there can be none. Ask in the parent, before the fork, for what you need (hvd.rank()); or start "
                  "the process anew: multiprocessing.get_context(\"spawn\").");
  }
  return Status(Code::kFailedPrecondition, "Horovod has not been initialized; use hvd.init().");
}

}  // namespace smddp
