// The boundary between XLA and the engine. A compiled collective is described once, when XLA compiles it; the machine
// code passes the description's number and the addresses.
//
// There are two implementations, of which the build selects one: custom_call_ffi.cc (TensorFlow 2.20 and later),
// which on a CPU does not occupy a thread while it waits, and custom_call_status.cc, which does. Both have a call for
// CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "ops/compiled_call.h"
#include "runtime/api/session.h"

namespace smddp::ops::xla_calls {

struct Description {
  CompiledCall call;
  std::vector<TensorRef> tensors;  // dtypes and shapes; the addresses are null
};

// The name of the custom call, and its API version (xla::CustomCallApiVersion). Its operands are the tensors and then
// the tokens that it depends on; its results are the tensors and a token of type int32.
inline constexpr char kTargetName[] = "smddp_collective";
int ApiVersion();
std::string BackendConfig(int64_t number, size_t tensors, size_t operands);

// Stores a description for the rest of the process and returns its number. Threads: any.
int64_t Remember(Description description);

// The body of the custom call: starts the collective that `number` describes. `done` as in StartCompiledCall.
using Inputs = std::vector<const void*>;
using Outputs = std::vector<void*>;
void Run(int64_t number, const Inputs& inputs, const Outputs& outputs, DoneCallback done);
// The same, and waits for `done`. It occupies the thread.
Status RunAndWait(int64_t number, const Inputs& inputs, const Outputs& outputs);

// The same for operands on a GPU: returns when `stream`, XLA's, waits for the results. It waits for the other ranks,
// not for the GPU. The token is not written.
Status RunOnStream(int64_t number, const Inputs& inputs, const Outputs& outputs, void* stream);

}  // namespace smddp::ops::xla_calls
