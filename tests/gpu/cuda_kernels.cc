// The kernels of tf_ops/cuda run by the processor, for tests/gpu/test_cuda_moves.py. Part of the fake GPU, which is
// made of them too.
#include <string>
#include <vector>

#include "cuda/kernels/jobs.h"
#include "on_host.h"

namespace smddp {
namespace {

// What a view has to name and these tests never use.
class NoCompute final : public Compute {
 public:
  const char* name() const override { return "none"; }
  void Cast(void*, DType, const void*, DType, int64_t, const Scaling&) const override {}
  void Reduce(void*, const void* const*, int, int64_t, DType, ReduceOp) const override {}
  void Quantise(void*, float*, float*, int64_t) const override {}
  void Dequantise(float*, const void*, int64_t, bool) const override {}
};

// In the order of ctypes' structure.
struct Call {
  const char *dtype, *wire;
  int64_t count;  // of pieces
  const void* const* inputs;
  void* const* outputs;
  const int64_t* elements;
  double factor;
  int64_t divisor;
  int64_t begin, end;
  void* packed;
  int32_t packs, blocks, threads;
};

thread_local std::string error;

int Noted(const Status& status) {
  error = status.message();
  return -1;
}

Result<std::vector<MoveJob>> JobsOf(const Call& call) {
  const NoCompute compute;
  SMDDP_ASSIGN_OR_RETURN(const DType dtype, DTypeFromName(call.dtype));
  SMDDP_ASSIGN_OR_RETURN(const DType wire, DTypeFromName(call.wire));
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < call.count; ++i) pieces.push_back({call.inputs[i], call.outputs[i], call.elements[i]});
  const Scaling scaling{call.factor, call.divisor};
  const FusedView view(dtype, wire, pieces, scaling, scaling, compute);
  const Range range{call.begin, call.end};
  return call.packs != 0 ? PlanPack(view, range, call.packed) : PlanUnpack(view, range, call.packed);
}

void RunAll(const std::vector<MoveJob>& jobs, int blocks, int threads) {
  for (const MoveJob& job : jobs) RunOnHost(job, blocks, threads);
}

}  // namespace
}  // namespace smddp

using namespace smddp;

#define KERNELS_EXPORT extern "C" __attribute__((visibility("default")))

KERNELS_EXPORT const char* kernels_error() { return error.c_str(); }

KERNELS_EXPORT uint64_t kernels_quads() { return QuadsOnHost(); }

// Launches, or -1.
KERNELS_EXPORT int kernels_move(const Call* call) {
  Result<std::vector<MoveJob>> jobs = JobsOf(*call);
  if (!jobs.ok()) return Noted(jobs.status());
  RunAll(*jobs, call->blocks, call->threads);
  return static_cast<int>(jobs->size());
}

// Without running: of launch i where it begins in the packed array, its first piece and its elements.
KERNELS_EXPORT int kernels_plan(const Call* call, void** packed, void** pieces, int64_t* elements, int room) {
  Result<std::vector<MoveJob>> jobs = JobsOf(*call);
  if (!jobs.ok()) return Noted(jobs.status());
  for (size_t i = 0; i < jobs->size() && i < static_cast<size_t>(room); ++i) {
    const MoveJob& job = (*jobs)[i];
    packed[i] = job.packed;
    pieces[i] = job.pieces[0];
    elements[i] = job.starts[job.count];
  }
  return static_cast<int>(jobs->size());
}
