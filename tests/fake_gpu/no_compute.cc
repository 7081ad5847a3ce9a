// What a view has to name and the kernels never use.
#include "compute/compute.h"
#include "settings.h"

namespace smddp {
namespace {

class NoCompute final : public Compute {
 public:
  const char* name() const override { return "fake"; }
  void Cast(void*, DType, const void*, DType, int64_t, const Scaling&) const override { fake::Fatal("Cast"); }
  void Reduce(void*, const void* const*, int, int64_t, DType, ReduceOp) const override { fake::Fatal("Reduce"); }
  void Quantise(void*, float*, float*, int64_t) const override { fake::Fatal("Quantise"); }
  void Dequantise(float*, const void*, int64_t, bool) const override { fake::Fatal("Dequantise"); }
};

}  // namespace

const Compute& CpuCompute(const char*) {
  static const NoCompute* const compute = new NoCompute;
  return *compute;
}

}  // namespace smddp
