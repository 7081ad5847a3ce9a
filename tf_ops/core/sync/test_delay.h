// Random delays where work passes from one thread or process to another, only in builds with SMDDP_DELAYS. The stress
// program (tests/stress) uses them to reach thread schedules that are rare in ordinary runs.
#pragma once

#include <cstdint>

namespace smddp {

#ifdef SMDDP_DELAYS
// Threads: any. Returns immediately, yields, or sleeps for up to a millisecond; usually the first.
void InjectTestDelay();
// From now on every thread draws its delays from `seed`.
void SeedTestDelays(uint64_t seed);
#else
inline void InjectTestDelay() {}
#endif

}  // namespace smddp
