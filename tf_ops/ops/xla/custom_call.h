// The boundary between XLA and the engine. A compiled collective is described once, when XLA compiles it; the machine
// code passes the description's number and the addresses.
//
// There are two implementations, of which the build selects one: custom_call_ffi.cc (TensorFlow 2.20 and later),
// which on a CPU does not occupy a thread while it waits, and custom_call_status.cc, which does. Both have a call for
// CUDA.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "ops/compiled_call.h"
#include "runtime/api/session.h"

namespace smddp::ops::xla_calls {

struct Description {
  CompiledCall call;
  std::vector<TensorRef> tensors;  // dtypes and shapes; the addresses are null
  // Of gradients that have calls of their own (StartGradient): is it known that XLA leaves them in place? Else null.
  std::shared_ptr<std::atomic<bool>> stay = nullptr;
};

// The name of the custom call, and its API version (xla::CustomCallApiVersion). Its operands are the tensors and then
// the tokens that it depends on; its results are the tensors and a token of type int32.
inline constexpr char kTargetName[] = "smddp_collective";
int ApiVersion();
std::string BackendConfig(int64_t number, size_t tensors, size_t operands);

// Gradients one by one, while XLA computes others. BeginGradients writes a handle of type int64; StartGradient gets a
// gradient and the handle, and its result, of which it says that it lies where the gradient does, is an operand of the
// custom call above, which gets the handle as the operand after the tensors. The engine reads and writes the gradient
// in between, when XLA takes it for constant. XLA may copy it, always or never in one executable. So the first run of
// each reduces at the end only, and compares addresses; gradients that stay in place are started early from the second
// run on.
//
// Neither waits; no error of the engine ends the execution in between, for XLA would then free the memory. A custom
// call of others that fails in between leaves the engine with memory that is not there any more.
inline constexpr char kStartName[] = "smddp_start_gradient";
inline constexpr int64_t kBegin = -1;  // `place` of the call that makes the handle
inline constexpr int kTypedFfi = 4;    // xla::API_VERSION_TYPED_FFI, which has these calls
std::string StartConfig(int64_t number, int64_t place);

// Stores a description for the rest of the process and returns its number. Threads: any.
int64_t Remember(Description description);

using Inputs = std::vector<const void*>;
using Outputs = std::vector<void*>;
// The bodies of the custom calls. Run starts the collective that `number` describes. `done` as in StartCompiledCall.
Status StartGradient(int64_t number, int64_t place, const Inputs& inputs, const Outputs& outputs);
void Run(int64_t number, const Inputs& inputs, const Outputs& outputs, DoneCallback done);
// The same, and waits for `done`. It occupies the thread.
Status RunAndWait(int64_t number, const Inputs& inputs, const Outputs& outputs);

// The same for operands on a GPU: returns when `stream`, XLA's, waits for the results. It waits for the other ranks,
// not for the GPU. The token is not written.
Status RunOnStream(int64_t number, const Inputs& inputs, const Outputs& outputs, void* stream);

}  // namespace smddp::ops::xla_calls
