// SMDDP_CHECK: a promise the library makes to itself. When it is broken there is no state worth keeping, so the
// process prints where, what and both values, and aborts; mpirun then ends the job.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/text.h"

namespace smddp::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* text, const std::string& values) {
  std::fprintf(stderr, "smddp_tf: internal check failed at %s:%d: %s%s\n", file, line, text, values.c_str());
  std::abort();
}

}  // namespace smddp::internal

#define SMDDP_CHECK(condition)                                                            \
  do {                                                                                    \
    if (!(condition)) ::smddp::internal::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)
#define SMDDP_CHECK_OP(a, op, b)                                                         \
  do {                                                                                   \
    if (!((a)op(b)))                                                                     \
      ::smddp::internal::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,              \
                                     ::smddp::Concat(" (", (a), " against ", (b), ")")); \
  } while (false)
