#include "ops/xla/custom_call.h"

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/device_tensors.h"

namespace smddp::ops::xla_calls {
namespace {

std::mutex g_mutex;
std::deque<Description> g_descriptions;  // a deque: its elements keep their addresses

// Numbers start at a random value, so that an executable from another process (TensorFlow can store them in files) is
// not mistaken for one of this process.
int64_t FirstNumber() {
  static const int64_t first = std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffffffff0000;
  return first;
}

const Description* Find(int64_t number) {
  std::lock_guard<std::mutex> lock(g_mutex);
  const int64_t index = number - FirstNumber();
  if (index < 0 || index >= static_cast<int64_t>(g_descriptions.size())) return nullptr;
  return &g_descriptions[index];
}

struct Call {
  const CompiledCall* collective = nullptr;
  std::vector<TensorRef> tensors;
};

Result<Call> ReadCall(int64_t number, const Inputs& inputs, const Outputs& outputs) {
  const Description* const description = Find(number);
  if (description == nullptr) {
    return Status(Reason::kBadState,
                  "This compiled function was made by another process. Collectives cannot be stored in XLA's "
                  "persistent cache; switch it off.");
  }
  Call call{&description->call, description->tensors};
  if (inputs.size() < call.tensors.size() || outputs.size() != call.tensors.size() + 1) {
    return Status(Reason::kInternal, "XLA passed operands that differ from the compiled ones.");
  }
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    call.tensors[i].input = inputs[i];
    call.tensors[i].output = outputs[i];
  }
  return call;
}

void Start(Call call, DoneCallback done) {
  const Result<std::shared_ptr<Session>> session = SessionOf(call.collective->process_set);
  if (!session.ok()) return done(session.status());
  StartCompiledCall(*session.value(), *call.collective, std::move(call.tensors), std::move(done));
}

template <class Begin>
Status Wait(Begin begin) {
  // Shared: the engine may still be inside set_value when this function returns.
  const auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> future = promise->get_future();
  begin([promise](const Status& ended) { promise->set_value(ended); });
  return future.get();
}

}  // namespace

int64_t Remember(Description description) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_descriptions.push_back(std::move(description));
  return FirstNumber() + static_cast<int64_t>(g_descriptions.size()) - 1;
}

void Run(int64_t number, const Inputs& inputs, const Outputs& outputs, DoneCallback done) {
  Result<Call> call = ReadCall(number, inputs, outputs);
  if (!call.ok()) return done(call.status());
  *static_cast<int32_t*>(outputs.back()) = 0;
  Start(std::move(*call), std::move(done));
}

Status RunAndWait(int64_t number, const Inputs& inputs, const Outputs& outputs) {
  return Wait([&](DoneCallback done) { Run(number, inputs, outputs, std::move(done)); });
}

Status RunOnStream(int64_t number, const Inputs& inputs, const Outputs& outputs, void* stream) {
  SMDDP_ASSIGN_OR_RETURN(Call call, ReadCall(number, inputs, outputs));
  SMDDP_RETURN_IF_ERROR(PutInOrder(stream, &call.tensors));
  return Wait([&](DoneCallback done) { Start(std::move(call), std::move(done)); });
}

}  // namespace smddp::ops::xla_calls
