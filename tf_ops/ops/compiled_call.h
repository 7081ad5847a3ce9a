// The request that a collective inside a function compiled by XLA makes. Shared by graph kernel and custom call.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "ops/collective_kernel.h"
#include "runtime/api/session.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {

enum class CompiledKind { kReduceGradients, kAllreduce, kBroadcast, kAllgather };

// The attributes of one SmddpCompiledCollective; see registrations.cc for their meaning.
struct CompiledCall {
  CompiledKind kind = CompiledKind::kAllreduce;
  std::string name;
  Arithmetic reduction;
  int plan = 0;  // kReduceGradients, like `site` and `alone`: session.h PlannedTensor
  int site = 0;
  bool alone = false;
  std::vector<int> indices;  // kReduceGradients: the index of each tensor in the plan
  int root = 0;              // kBroadcast
  int process_set = 0;
  int size = 0;   // the number of ranks for which shapes were compiled; 0: any
  int rank = -1;  // likewise the rank in the set; -1: any
};

// Reads them; on a bad value `construction` carries the error afterwards.
CompiledCall ReadCompiledCall(tensorflow::OpKernelConstruction* construction);

// Makes the request. Each of `tensors` has an output of the input's shape; the output of an allgather holds one such
// block for every rank, so all ranks must pass the same shape. Fails where shapes were compiled for another number of
// ranks (elastic training).
//
// Threads: any; does not wait. `done` is called exactly once, from the engine thread or from this call; the memory
//          behind `tensors` must live until then.
void StartCompiledCall(Session& session, const CompiledCall& call, std::vector<TensorRef> tensors, DoneCallback done);

}  // namespace smddp::ops
