#include "ops/xla/custom_call.h"

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace smddp::ops::xla_calls {
namespace {

std::mutex g_mutex;
std::deque<Description> g_descriptions;  // a deque: its elements stay where they are

// Numbers start anywhere, so that an executable from another process (TensorFlow can keep them in files) is not taken
// for one of ours.
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

}  // namespace

int64_t Remember(Description description) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_descriptions.push_back(std::move(description));
  return FirstNumber() + static_cast<int64_t>(g_descriptions.size()) - 1;
}

void Run(int64_t number, const Inputs& inputs, const Outputs& outputs, DoneCallback done) {
  const Description* const description = Find(number);
  if (description == nullptr) {
    return done(Status(Code::kFailedPrecondition,
                       "This compiled function was made by another process. Collectives cannot be kept in XLA's "
                       "persistent cache; switch it off."));
  }
  std::vector<TensorRef> tensors = description->tensors;
  if (inputs.size() < tensors.size() || outputs.size() != tensors.size() + 1) {
    return done(Status(Code::kInternal, "XLA passed other operands than were compiled."));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].input = inputs[i];
    tensors[i].output = outputs[i];
  }
  *static_cast<int32_t*>(outputs.back()) = 0;
  const Result<std::shared_ptr<Session>> session = SessionOf(description->call.process_set);
  if (!session.ok()) return done(session.status());
  StartCompiledCall(*session.value(), description->call, std::move(tensors), std::move(done));
}

}  // namespace smddp::ops::xla_calls
