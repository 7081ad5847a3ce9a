// The custom calls of TensorFlow 2.20 and later. On a CPU the call returns at once, and XLA continues with what does
// not need the result. On a GPU, where XLA runs one call after another, it waits until the result is ordered with
// XLA's stream.
#include <cstdint>
#include <string>
#include <vector>

#include "ops/tensor_adapter.h"
#include "ops/xla/custom_call.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool.h"
#include "xla/ffi/api/ffi.h"

// Exported by TensorFlow; the header that declares it needs LLVM's headers.
namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();
}

namespace smddp::ops::xla_calls {
namespace {

namespace ffi = xla::ffi;

const void* AddressOf(const ffi::AnyBuffer& operand) { return operand.untyped_data(); }
void* AddressOf(ffi::Result<ffi::AnyBuffer>& result) { return result->untyped_data(); }

template <class Buffers, class Address>
Status AddressesOf(const Buffers& buffers, std::vector<Address>* addresses) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto buffer = buffers.template get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return Status(Reason::kInternal, buffer.error().message());
    addresses->push_back(AddressOf(*buffer));
  }
  return Status::Ok();
}

template <class Body>
Status WithAddresses(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results, Body body) {
  Inputs inputs;
  Outputs outputs;
  SMDDP_RETURN_IF_ERROR(AddressesOf(operands, &inputs));
  SMDDP_RETURN_IF_ERROR(AddressesOf(results, &outputs));
  return body(inputs, outputs);
}

ffi::Error ToFfi(const Status& status) {
  if (status.ok()) return ffi::Error::Success();
  const absl::Status error = ToTensorFlow(status);
  return ffi::Error(static_cast<ffi::ErrorCode>(error.code()), std::string(error.message()));
}

ffi::Future CustomCall(ffi::RemainingArgs operands, ffi::RemainingRets results, int64_t number) {
  // XLA continues on the thread that completes the promise, which must not be the engine's. This one lives as long as
  // the process, and items run in order.
  static auto* const thread =
      new tensorflow::thread::ThreadPool(tensorflow::Env::Default(), tensorflow::ThreadOptions(), "smddp_xla",
                                         /*num_threads=*/1, /*low_latency_hint=*/false);
  ffi::Promise promise;
  ffi::Future future(promise);
  const DoneCallback done = [promise](const Status& status) mutable {
    thread->Schedule([promise, status]() mutable {
      if (status.ok()) {
        promise.SetAvailable();
      } else {
        promise.SetError(ToFfi(status));
      }
    });
  };
  const Status begun = WithAddresses(operands, results, [&](const Inputs& inputs, const Outputs& outputs) {
    Run(number, inputs, outputs, done);
    return Status::Ok();
  });
  if (!begun.ok()) done(begun);
  return future;
}

XLA_FFI_DEFINE_HANDLER(kHandler, CustomCall, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>("number"));
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kTargetName, "Host", kHandler);

ffi::Error StartCall(ffi::RemainingArgs operands, ffi::RemainingRets results, int64_t number, int64_t place) {
  return ToFfi(WithAddresses(operands, results, [&](const Inputs& inputs, const Outputs& outputs) {
    return StartGradient(number, place, inputs, outputs);
  }));
}

XLA_FFI_DEFINE_HANDLER(kStartHandler, StartCall,
                       ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>("number").Attr<int64_t>("place"));
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartName, "Host", kStartHandler);

// A cudaStream_t, for which XLA accepts any pointer.
ffi::Error CustomCallOnCuda(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results, int64_t number) {
  return ToFfi(WithAddresses(operands, results, [&](const Inputs& inputs, const Outputs& outputs) {
    return RunOnStream(number, inputs, outputs, stream);
  }));
}

XLA_FFI_DEFINE_HANDLER(
    kCudaHandler, CustomCallOnCuda,
    ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().RemainingArgs().RemainingRets().Attr<int64_t>("number"));
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kTargetName, "CUDA", kCudaHandler);

}  // namespace

int ApiVersion() { return kTypedFfi; }

std::string BackendConfig(int64_t number, size_t /*tensors*/, size_t /*operands*/) {
  return "{number = " + std::to_string(number) + " : i64}";
}

}  // namespace smddp::ops::xla_calls
