// The kernels with the instructions every processor of this architecture has.
#include "compute/cpu/elements.inc"
#include "compute/cpu/kernel_table.h"

namespace smddp {
namespace {

// One at a time; the compiler vectorises bfloat16 from here. (Four at a time, written out with vectors, was tried:
// without F16C it gains float16 at most a third and costs bfloat16 as much.)
struct Lanes {
  static constexpr int kCount = 1;
  template <class T>
  static float Load(const T* from) {
    return Widen(*from);
  }
  template <class T>
  static void Store(T* into, float value) {
    *into = Narrow<T>(value);
  }
};

}  // namespace
}  // namespace smddp

#include "compute/cpu/kernels.inc"

namespace smddp {

const KernelTable& GenericKernels() {
  static constexpr KernelTable kTable = MakeTable("generic");
  return kTable;
}

}  // namespace smddp
