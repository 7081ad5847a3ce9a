#include "on_host.h"

#include "cuda/kernels/move.h"
#include "dispatch.h"

namespace smddp {

void RunOnHost(const MoveJob& job, uint32_t blocks, uint32_t threads) {
  WithPair(job.to, job.from, [&](auto to, auto from) {
    using To = typename decltype(to)::Type;
    using From = typename decltype(from)::Type;
    for (uint32_t block = 0; block < blocks; ++block) {
      for (uint32_t thread = 0; thread < threads; ++thread) {
        MoveThread<To, From>(job, block, blocks, thread, threads);
      }
    }
  });
}

void SumOnHost(void* into, const void* const* sources, int count, int64_t elements, DType dtype) {
  const Element element = dtype == DType::kFloat16    ? Element::kHalf
                          : dtype == DType::kBFloat16 ? Element::kBFloat16
                          : dtype == DType::kFloat32  ? Element::kFloat
                                                      : Element::kDouble;
  WithFloating(element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t i = 0; i < elements; ++i) {
      Wide<T> sum = Widened(static_cast<const T*>(sources[0])[i]);
      for (int k = 1; k < count; ++k) sum = sum + Widened(static_cast<const T*>(sources[k])[i]);
      static_cast<T*>(into)[i] = Narrowed<T>(sum);
    }
  });
}

uint64_t QuadsOnHost() { return quads_of_thread; }

}  // namespace smddp
