#include "core/sync/test_delay.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <random>

namespace smddp {
namespace {

std::atomic<uint64_t> g_seed{0};
std::atomic<uint64_t> g_threads{0};

}  // namespace

void SeedTestDelays(uint64_t seed) {
  g_threads = 0;
  g_seed = seed;
}

void InjectTestDelay() {
  thread_local uint64_t seeded_by = ~uint64_t{0};
  thread_local std::minstd_rand random;
  const uint64_t seed = g_seed.load(std::memory_order_relaxed);
  if (seed != seeded_by) {
    seeded_by = seed;
    random.seed(static_cast<uint32_t>(seed * 1000003 + g_threads.fetch_add(1, std::memory_order_relaxed)));
  }
  const uint32_t draw = static_cast<uint32_t>(random()) % 1000;
  if (draw < 60) {
    sched_yield();
  } else if (draw < 75) {
    usleep(draw % 15 * 10);
  } else if (draw < 77) {
    usleep(1000);
  }
}

}  // namespace smddp
