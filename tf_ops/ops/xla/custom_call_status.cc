// The custom calls of TensorFlow before 2.20: they return when the collective is done, and occupy one of XLA's
// threads until then.
#include <sstream>
#include <string>

#include "ops/tensor_adapter.h"
#include "ops/xla/custom_call.h"
#include "xla/service/custom_call_status_internal.h"
#include "xla/service/custom_call_target_registry.h"

namespace smddp::ops::xla_calls {
namespace {

// Data passed with the call, because XLA passes bare arrays: the collective's number, the number of tensors and the
// number of operands.
struct Config {
  Config(const char* config, size_t size) {
    std::istringstream text(std::string(config, size));
    text >> number >> tensors >> operands;
  }
  int64_t number = 0, tensors = 0, operands = 0;
};

// Equivalent to XlaCustomCallStatusSetFailure, which TensorFlow does not export.
void Report(const Status& ended, XlaCustomCallStatus* status) {
  if (!ended.ok()) status->message = std::string(ToTensorFlow(ended).message());
}

void CustomCall(void* result, const void** operands, const char* config, size_t config_size,
                XlaCustomCallStatus* status) {
  const Config call(config, config_size);
  void** const results = static_cast<void**>(result);
  Report(
      RunAndWait(call.number, Inputs(operands, operands + call.tensors), Outputs(results, results + call.tensors + 1)),
      status);
}

// `buffers`: of the operands, then of the results.
void CustomCallOnCuda(void* stream, void** buffers, const char* config, size_t config_size,
                      XlaCustomCallStatus* status) {
  const Config call(config, config_size);
  void** const results = buffers + call.operands;
  Report(RunOnStream(call.number, Inputs(buffers, buffers + call.tensors), Outputs(results, results + call.tensors + 1),
                     stream),
         status);
}

const xla::RegisterCustomCallTarget registered(kTargetName, reinterpret_cast<void*>(CustomCall), "Host");
const xla::RegisterCustomCallTarget on_cuda(kTargetName, reinterpret_cast<void*>(CustomCallOnCuda), "CUDA");

}  // namespace

int ApiVersion() { return 3; }  // xla::API_VERSION_STATUS_RETURNING_UNIFIED

std::string BackendConfig(int64_t number, size_t tensors, size_t operands) {
  return std::to_string(number) + " " + std::to_string(tensors) + " " + std::to_string(operands);
}

}  // namespace smddp::ops::xla_calls
