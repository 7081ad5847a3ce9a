#include <algorithm>
#include <string>

#include "compute/compute.h"
#include "native/testing.h"

namespace smddp {
namespace {

int RankOf(const std::string& name) { return name == "generic" ? 0 : name == "avx2" ? 1 : name == "avx512" ? 2 : -1; }

TEST_CASE("dispatch: what is asked for, or the best that this processor has") {
  const std::string best = CpuCompute().name();
  CHECK(RankOf(best) >= 0);
  CHECK(std::string(CpuCompute("generic").name()) == "generic");
  for (const char* name : {"generic", "avx2", "avx512"}) {
    CHECK(RankOf(CpuCompute(name).name()) == std::min(RankOf(name), RankOf(best)));
  }
  CHECK(std::string(CpuCompute("auto").name()) == best);
  CHECK(std::string(CpuCompute("nonsense").name()) == best);
  CHECK(&CpuCompute("generic") == &CpuCompute("generic"));
}

TEST_CASE("dispatch: the best one is what the system says of the processor") {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2");
  if (!avx2) CHECK(std::string(CpuCompute().name()) == "generic");
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    CHECK(std::string(CpuCompute().name()) == "avx512");
  }
#endif
}

}  // namespace
}  // namespace smddp
