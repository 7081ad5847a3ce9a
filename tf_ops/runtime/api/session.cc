#include "runtime/api/session.h"

#include <iterator>

#include "core/process/forked.h"

namespace smddp {

size_t TensorRef::row_bytes() const {
  if (shape.empty()) return SizeOf(dtype);
  return static_cast<size_t>(ElementCount({shape.begin() + 1, shape.end()})) * SizeOf(dtype);
}

const char* NameOf(TraceWhat what) {
  static constexpr const char* kNames[] = {"op_announced", "op_start",     "op_done",        "op_failed",
                                           "tensor_ready", "tensor_start", "tensor_done",    "bucket_complete",
                                           "bucket_start", "bucket_done",  "stage_begin",    "stage_end",
                                           "cycle_start",  "plan_order",   "step_gradients", "step_done"};
  static_assert(std::size(kNames) == static_cast<size_t>(TraceWhat::kStepDone) + 1, "one name for each");
  return kNames[static_cast<size_t>(what)];
}

Status NotInitialized(bool was_ended) {
  if (IsFork()) {
    return Status(Reason::kBadState,
                  "This process was forked from one that had called hvd.init(). The session belongs to the parent and "
                  "cannot be used here. Get what you need, such as hvd.rank(), in the parent before the fork, or start "
                  "the process with multiprocessing.get_context(\"spawn\").");
  }
  const char* why = was_ended ? " hvd.shutdown() has ended the session." : " (Horovod's words; this is smddp_tf.)";
  return Status(Reason::kBadState, "Horovod has not been initialized; use hvd.init().", why);
}

}  // namespace smddp
