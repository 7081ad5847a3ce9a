// The places where work passes from one thread or process to another. The stress program (tests/stress) is built with
// SMDDP_DELAYS, and waits there for a random moment, so that a few seconds see schedules that a year of ordinary runs
// would not. Elsewhere it is nothing.
#pragma once

#include <cstdint>

namespace smddp {

#ifdef SMDDP_DELAYS
// Threads: any. Returns at once, yields, or sleeps for up to a millisecond; mostly the first.
void HandOver();
// From now on every thread draws its delays from `seed`.
void SeedHandOvers(uint64_t seed);
#else
inline void HandOver() {}
#endif

}  // namespace smddp
