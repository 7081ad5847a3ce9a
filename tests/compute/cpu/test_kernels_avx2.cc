#include "compute/compute.h"
#include "native/kernels.h"

namespace smddp {
namespace {

TEST_CASE("kernels: avx2, where this processor has it") {
#if defined(__x86_64__)
  if (std::string(CpuCompute("avx2").name()) == "avx2") {
    CHECK(std::string(Avx2Kernels().name) == "avx2");
    CheckKernels(Avx2Kernels());
  }
#endif
}

}  // namespace
}  // namespace smddp
