// Chooses the kernels for the processor this process runs on.
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "compute/cpu/cpu_compute.h"

namespace smddp {
namespace {

enum Isa { kGeneric = 0, kAvx2 = 1, kAvx512 = 2 };  // each includes the ones before it

#if defined(__x86_64__)

// Clang before version 16 does not accept the name "f16c" in __builtin_cpu_supports.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
Isa BestIsa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !HasF16c()) return kGeneric;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? kAvx512 : kAvx2;
}

const KernelTable& TableFor(Isa isa) {
  if (isa == kAvx512) return Avx512Kernels();
  return isa == kAvx2 ? Avx2Kernels() : GenericKernels();
}

#else

Isa BestIsa() { return kGeneric; }
const KernelTable& TableFor(Isa) { return GenericKernels(); }

#endif

// "auto" and unknown names select the best.
Isa Requested(const char* name) {
  if (std::strcmp(name, "generic") == 0) return kGeneric;
  return std::strcmp(name, "avx2") == 0 ? kAvx2 : kAvx512;
}

template <Isa isa>
const Compute& ComputeFor() {
  static const TableCompute compute(TableFor(isa));
  return compute;
}

}  // namespace

const Compute& CpuCompute(const char* requested) {
  const Isa best = BestIsa(), wanted = Requested(requested), isa = wanted < best ? wanted : best;
  return isa == kAvx512 ? ComputeFor<kAvx512>() : isa == kAvx2 ? ComputeFor<kAvx2>() : ComputeFor<kGeneric>();
}

}  // namespace smddp
