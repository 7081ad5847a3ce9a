#include "ops/xla/custom_call.h"

#include <chrono>
#include <deque>
#include <future>
#include <mutex>
#include <utility>

#include "ops/tensor_adapter.h"

namespace smddp::ops::xla_calls {
namespace {

// Of one execution; XLA's threads hold it, so the engine thread is not the last to hold the session.
struct RunHandle {
  std::shared_ptr<Session> session;
  std::shared_ptr<GradientRun> run;
};

std::mutex g_mutex;
std::deque<Description> g_descriptions;  // a deque: its elements keep their addresses

// Numbers start at a random value, so that an executable from another process (TensorFlow can store them in files) is
// not mistaken for one of this process.
const int64_t g_first_number = std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffffffff0000;

Result<const Description*> Find(int64_t number) {
  std::lock_guard<std::mutex> lock(g_mutex);
  const int64_t index = number - g_first_number;
  if (index >= 0 && index < static_cast<int64_t>(g_descriptions.size())) return &g_descriptions[index];
  return Status(Reason::kBadState,
                "This compiled function was made by another process. Collectives cannot be stored in XLA's persistent "
                "cache; switch it off.");
}

struct Call {
  const Description* description = nullptr;
  std::vector<TensorRef> tensors;
};

Result<Call> ReadCall(int64_t number, const Inputs& inputs, const Outputs& outputs) {
  SMDDP_ASSIGN_OR_RETURN(const Description* const description, Find(number));
  Call call{description, description->tensors};
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
  const CompiledCall& collective = call.description->call;
  const Result<std::shared_ptr<Session>> session = SessionOf(collective.process_set);
  if (!session.ok()) return done(session.status());
  StartCompiledCall(*session.value(), collective, std::move(call.tensors), std::move(done));
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

std::string StartConfig(int64_t number, int64_t place) {
  return "{number = " + std::to_string(number) + " : i64, place = " + std::to_string(place) + " : i64}";
}

int64_t Remember(Description description) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_descriptions.push_back(std::move(description));
  return g_first_number + static_cast<int64_t>(g_descriptions.size()) - 1;
}

Status StartGradient(int64_t number, int64_t place, const Inputs& inputs, const Outputs& outputs) {
  SMDDP_ASSIGN_OR_RETURN(const Description* const description, Find(number));
  const CompiledCall& call = description->call;
  if (place == kBegin) {
    SMDDP_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, SessionOf(call.process_set));
    auto run = std::make_shared<GradientRun>(*session, call, *description->stay);
    *static_cast<RunHandle**>(outputs[0]) = new RunHandle{std::move(session), std::move(run)};
    return Status::Ok();
  }
  TensorRef gradient = description->tensors[place];
  gradient.input = inputs[0];
  gradient.output = outputs[0];
  (*static_cast<RunHandle* const*>(inputs[1]))->run->Start(place, gradient);
  return Status::Ok();
}

void Run(int64_t number, const Inputs& inputs, const Outputs& outputs, DoneCallback done) {
  Result<Call> call = ReadCall(number, inputs, outputs);
  if (!call.ok()) return done(call.status());
  *static_cast<int32_t*>(outputs.back()) = 0;
  if (call->description->stay != nullptr) {
    const std::unique_ptr<RunHandle> handle(*static_cast<RunHandle* const*>(inputs[call->tensors.size()]));
    *call->description->stay = handle->run->Finish(call->tensors, std::move(done));
    return;
  }
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
