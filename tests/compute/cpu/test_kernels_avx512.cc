#include "compute/compute.h"
#include "native/kernels.h"

namespace smddp {
namespace {

TEST_CASE("kernels: avx512, where this processor has it") {
#if defined(__x86_64__)
  if (std::string(CpuCompute("avx512").name()) == "avx512") {
    CHECK(std::string(Avx512Kernels().name) == "avx512");
    CheckKernels(Avx512Kernels());
  }
#endif
}

}  // namespace
}  // namespace smddp
