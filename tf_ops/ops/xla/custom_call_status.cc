// The custom call of TensorFlow before 2.20: it returns when the collective is done, and occupies one of XLA's threads
// until then.
#include <cstdlib>
#include <future>
#include <memory>
#include <string>

#include "ops/xla/custom_call.h"
#include "xla/service/custom_call_status_internal.h"
#include "xla/service/custom_call_target_registry.h"

namespace smddp::ops::xla_calls {
namespace {

// The number of tensors comes with the call, because XLA passes bare arrays.
void CustomCall(void* result, const void** operands, const char* config, size_t config_size,
                XlaCustomCallStatus* status) {
  const std::string text(config, config_size);
  char* rest = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &rest, 10);
  const int64_t tensors = std::strtoll(rest, nullptr, 10);
  void** const results = static_cast<void**>(result);
  // Shared: the engine may still be inside set_value when this function returns.
  const auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> future = promise->get_future();
  Run(number, Inputs(operands, operands + tensors), Outputs(results, results + tensors + 1),
      [promise](const Status& ended) { promise->set_value(ended); });
  const Status ended = future.get();
  // What XlaCustomCallStatusSetFailure does; TensorFlow does not export it.
  if (!ended.ok()) status->message = ended.message();
}

const xla::RegisterCustomCallTarget registered(kTargetName, reinterpret_cast<void*>(CustomCall), "Host");

}  // namespace

int ApiVersion() { return 3; }  // xla::API_VERSION_STATUS_RETURNING_UNIFIED

std::string BackendConfig(int64_t number, size_t tensors) {
  return std::to_string(number) + " " + std::to_string(tensors);
}

}  // namespace smddp::ops::xla_calls
