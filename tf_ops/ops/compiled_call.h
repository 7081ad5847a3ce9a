// The request that a collective inside a function compiled by XLA makes. Shared by graph kernel and custom call.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/status.h"
#include "ops/collective_kernel.h"
#include "runtime/api/session.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {

// The attributes of one SmddpCompiledCollective; see registrations.cc for their meaning. kPlan: it reduces gradients.
struct CompiledCall : Collective {
  int plan = 0;  // kPlan, like `site` and `alone`: session.h PlannedTensor
  int site = 0;
  bool alone = false;
  std::vector<int> indices;  // kPlan: the index of each tensor in the plan
  int process_set = 0;
  int size = 0;   // the number of ranks for which shapes were compiled; 0: any
  int rank = -1;  // likewise the rank in the set; -1: any
};

// Reads them; on a bad value `construction` carries the error afterwards.
CompiledCall ReadCompiledCall(tensorflow::OpKernelConstruction* construction);

// One run of a kPlan call whose gradients are handed to the engine as they become ready.
//
// Threads: Start may be called from several threads, once for each gradient; Finish from any, once, after that. Nothing
//          waits.
// Ownership: `call` outlives the run, and `session` the call of Finish. From Start until `done` is called the memory
//            behind a gradient must live, and nobody else may use it.
class GradientRun : public std::enable_shared_from_this<GradientRun> {
 public:
  // `early`: gradients are reduced from Start on; else from Finish on, in the order of their starts.
  GradientRun(Session& session, const CompiledCall& call, bool early);

  // `place` is that in `call.indices`.
  void Start(size_t place, const TensorRef& gradient);
  // `done` is called when all have ended, with the first error. Returns whether all `gradients` lie where they were at
  // their start; with `early` it is an error if not.
  bool Finish(const std::vector<TensorRef>& gradients, DoneCallback done);

 private:
  void Reduce(size_t place, const TensorRef& gradient);
  void End(const Status& status);  // of a gradient, or of Finish

  Session& session_;  // until Finish
  const CompiledCall& call_;
  const bool early_;
  const uint64_t run_;
  std::mutex mutex_;
  std::vector<std::pair<size_t, const void*>> started_;  // places and addresses
  size_t missing_;
  Status first_error_;
  DoneCallback done_;
};

// Makes the request. Each of `tensors` has an output of the input's shape; the output of an allgather holds one such
// block for every rank, so all ranks must pass the same shape. Fails where shapes were compiled for another number of
// ranks (elastic training).
//
// Threads: any; does not wait. `done` is called exactly once, from the engine thread or from this call; the memory
//          behind `tensors` must live until then.
void StartCompiledCall(Session& session, const CompiledCall& call, std::vector<TensorRef> tensors, DoneCallback done);

}  // namespace smddp::ops
