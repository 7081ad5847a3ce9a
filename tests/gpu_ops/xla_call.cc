// Calls our custom call for CUDA as XLA does, with a stream of the fake GPU. The tensors are float32 of one dimension
// and are reduced to their sums in place.
#include <cstdint>
#include <string>
#include <utility>

#include "fake_stream.h"
#include "ops/xla/custom_call.h"
#include "xla/ffi/call_frame.h"
#include "xla/ffi/ffi_api.h"

namespace {

namespace xla_calls = smddp::ops::xla_calls;

xla_calls::Description Describe(bool planned, const char* name, int plan, int count, const int64_t* elements) {
  xla_calls::Description description;
  description.call.kind = planned ? smddp::RequestKind::kPlan : smddp::RequestKind::kAllreduce;
  description.call.name = name;
  description.call.plan = plan;
  description.call.op = smddp::ReduceOp::kSum;
  for (int i = 0; i < count; ++i) {
    smddp::TensorRef tensor;
    tensor.shape = {elements[i]};
    description.tensors.push_back(std::move(tensor));
    description.call.indices.push_back(i);
  }
  return description;
}

xla::ffi::CallFrame Frame(int64_t number, int count, const int64_t* elements, void** memory, void* token) {
  const stream_executor::DeviceAddressBase of_token(token, sizeof(int32_t));
  xla::ffi::CallFrameBuilder frame(count + 1, count + 1);
  for (int i = 0; i < count; ++i) {
    const stream_executor::DeviceAddressBase address(memory[i], elements[i] * sizeof(float));
    frame.AddBufferArg(address, xla::F32, {elements[i]});
    frame.AddBufferRet(address, xla::F32, {elements[i]});
  }
  frame.AddBufferArg(of_token, xla::S32, {});  // what comes before it
  frame.AddBufferRet(of_token, xla::S32, {});
  xla::ffi::CallFrameBuilder::AttributesBuilder attributes;
  attributes.Insert("number", xla::ffi::Attribute(xla::ffi::Scalar(number)));
  frame.AddAttributes(attributes.Build());
  return frame.Build();
}

}  // namespace

// Returns the error, "" for none.
extern "C" const char* xla_call(int planned, const char* name, int plan, int count, const int64_t* elements,
                                void** memory, void* token, void* handle) {
  static std::string text;
  const int64_t number = xla_calls::Remember(Describe(planned != 0, name, plan, count, elements));
  const auto handler = xla::ffi::FindHandler(xla_calls::kTargetName, "CUDA");
  if (!handler.ok()) return (text = handler.status().ToString()).c_str();
  xla::ffi::CallFrame frame = Frame(number, count, elements, memory, token);
  FakeStream stream(handle);
  xla::ffi::CallOptions options;
  xla::ffi::CallOptions::GpuOptions gpu;
  gpu.stream = &stream;
  options.backend_options = gpu;
  const absl::Status status = xla::ffi::Call(handler->bundle.execute, frame, options, XLA_FFI_ExecutionStage_EXECUTE);
  text = status.ok() ? "" : status.ToString();
  return text.c_str();
}
