#include "on_host.h"

#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/move.h"
#include "cuda/kernels/sum.h"

namespace smddp {
namespace {

template <class ThreadOf>
void RunThreads(uint32_t blocks, uint32_t threads, uint64_t* non_finite, ThreadOf thread_of) {
  uint64_t found = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t thread = 0; thread < threads; ++thread) found += thread_of(block, thread);
  }
  if (non_finite != nullptr && found > 0) __atomic_fetch_add(non_finite, found, __ATOMIC_RELAXED);
}

}  // namespace

void RunOnHost(const MoveJob& job, uint32_t blocks, uint32_t threads) {
  WithPair(job.to, job.from, [&](auto to, auto from) {
    using To = typename decltype(to)::Type;
    using From = typename decltype(from)::Type;
    RunThreads(blocks, threads, job.non_finite, [&](uint32_t block, uint32_t thread) {
      return MoveThread<To, From>(job, block, blocks, thread, threads);
    });
  });
}

void RunOnHost(const SumJob& job, uint32_t blocks, uint32_t threads) {
  WithFloating(job.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    RunThreads(blocks, threads, job.non_finite,
               [&](uint32_t block, uint32_t thread) { return SumThread<T>(job, block, blocks, thread, threads); });
  });
}

uint64_t QuadsOnHost() { return quads_of_thread; }

}  // namespace smddp
