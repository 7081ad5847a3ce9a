// Random delays where work passes from one thread or process to another, in builds with SMDDP_DELAYS only. The stress
// program (tests/stress) is built so: a few seconds of it see schedules that a year of ordinary runs would not.
#pragma once

#include <cstdint>

namespace smddp {

#ifdef SMDDP_DELAYS
// Threads: any. Returns at once, yields, or sleeps for up to a millisecond; mostly the first.
void InjectTestDelay();
// From now on every thread draws its delays from `seed`.
void SeedTestDelays(uint64_t seed);
#else
inline void InjectTestDelay() {}
#endif

}  // namespace smddp
