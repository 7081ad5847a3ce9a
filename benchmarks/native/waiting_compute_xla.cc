// Waiting computation in functions that XLA compiles: a custom call that takes time but no core. For
// `benchmarks.scaling`.
//
// smddp_bench_wait: operands are a factor (float32), a scalar of the computation before it, which it waits for, and a
// value (float32). Results are that scalar and the value, after as many seconds as the configuration says, times the
// factor. The configuration is "SECONDS BYTES", the second of the value. It blocks its thread, as computing would.

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "xla/service/custom_call_target_registry.h"

namespace {

void Wait(void** results, const void** operands, const char* config, size_t size, void* /*status*/) {
  const std::string text(config, size);
  char* rest = nullptr;
  const double seconds = std::strtod(text.c_str(), &rest);
  const size_t bytes = std::strtoull(rest, nullptr, 10);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds * *static_cast<const float*>(operands[0])));
  std::memcpy(results[0], operands[1], sizeof(float));
  std::memcpy(results[1], operands[2], bytes);
}

const xla::RegisterCustomCallTarget registered("smddp_bench_wait", reinterpret_cast<void*>(Wait), "Host");

}  // namespace
