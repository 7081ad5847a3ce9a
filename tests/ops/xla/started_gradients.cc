// Makes the custom calls of one gradient (float32, one dimension) as XLA does in a run of a compiled step.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "ops/xla/custom_call.h"

namespace xla_calls = smddp::ops::xla_calls;

extern "C" int64_t describe(int plan, int64_t elements) {
  smddp::TensorRef tensor;
  tensor.shape = {elements};
  xla_calls::Description description;
  description.call.kind = smddp::RequestKind::kPlan;
  description.call.name = "started";
  description.call.plan = plan;
  description.call.indices = {0};
  description.call.op = smddp::ReduceOp::kSum;
  description.tensors = {std::move(tensor)};
  description.stay = std::make_shared<std::atomic<bool>>(false);
  return xla_calls::Remember(std::move(description));
}

// The gradient is at `from` when it is handed over and at `to` when its reduction has to end. Returns the error, "" for
// none.
extern "C" const char* run(int64_t number, int64_t elements, float* from, float* to) {
  static std::string text;
  void* handle = nullptr;
  int32_t token = 1;
  smddp::Status status = xla_calls::StartGradient(number, xla_calls::kBegin, {}, {&handle});
  if (status.ok()) status = xla_calls::StartGradient(number, 0, {from, &handle}, {from});
  if (from != to) std::memcpy(to, from, elements * sizeof(float));
  if (status.ok()) status = xla_calls::RunAndWait(number, {to, &handle}, {to, &token});
  return (text = status.message()).c_str();
}
