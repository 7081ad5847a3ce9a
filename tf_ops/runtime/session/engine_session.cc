#include "runtime/session/engine_session.h"

#include <algorithm>
#include <utility>

#include "collectives/node/parts.h"
#include "core/process/log.h"
#include "core/slice.h"

namespace smddp {
EngineSession::EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& registry,
                             Engine::FailureCallback on_failure)
    : registry_(registry),
      parts_(std::move(parts)),
      engine_(*parts_, tasks_, env.heartbeat_timeout_s, std::move(on_failure)),
      components_(engine_, *parts_, tasks_, env, registry,
                  [this](KeptArrival kept) { ReduceNow(kept.where, kept.tensor, std::move(kept.done)); }),
      diagnostics_(engine_, *parts_, components_) {
  engine_.Start();
}

void EngineSession::Fail(const Status& why) {
  engine_.Submit([this, why] { engine_.Fail(why); });
}

void EngineSession::Stop(bool at_exit) {
  diagnostics_.CloseTimeline();
  engine_.Stop(at_exit);
  if (std::exchange(stopped_, true)) return;
  const SessionStats stats = diagnostics_.Stats();
  Log(LogLevel::kDebug, "the session", topology().is_process_set() ? " of a process set" : "",
      " ends: ", stats.named_requests, " requests, ", stats.planned_buckets, " gradient buckets, ",
      stats.node_bytes_sent, " bytes to ranks of this node (", stats.node_bytes_referred, " in shared tensors) and ",
      stats.rail_bytes_sent, " to other nodes");
}

void EngineSession::SubmitWork(std::function<void()> work, const DoneCallback& done) {
  if (!engine_.Submit(std::move(work))) done(NotInitialized());
}

// --- Gradients of plans ---

Result<int> EngineSession::RegisterPlan(const PlanSpec& spec) {
  if (spec.op == ReduceOp::kAdasum) {
    return Status(Reason::kBadArgument, "Adasum cannot be used with plans: its tensors are matched by name.");
  }
  if (!spec.parting.whole()) SMDDP_RETURN_IF_ERROR(PlaceInParts(topology().rank(), spec.parting.parts).status());
  return registry_.NumberOf(spec);
}

Result<int> EngineSession::PlaceInParts(int rank, int parts) {
  SMDDP_RETURN_IF_ERROR(CheckParts(topology(), parts_->fabric().chunk_bytes, parts));
  return smddp::PlaceInParts(topology(), rank, parts);
}

void EngineSession::ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  SubmitWork([this, where, tensor, done]() mutable { ReduceNow(where, tensor, std::move(done)); }, done);
}

void EngineSession::ReduceNow(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  if (components_.join.waiting()) {
    return components_.join.RunOrHold([this, where, tensor, done] { ReduceNow(where, tensor, done); });
  }
  components_.given_up_steps.BeforeArrival(where);
  if (components_.planned.Reduce(where, tensor, std::move(done))) components_.join.OnStepBegun(where);
}

void EngineSession::CancelPlanned(const PlannedTensor& where) {
  engine_.Submit([this, where] {
    if (!engine_.failure().ok()) return;
    components_.cancelled.Add("gradient " + std::to_string(where.index));
    components_.given_up_steps.Cancel(where);
  });
}

// --- Requests by name ---

void EngineSession::Submit(Request request, DoneCallback done) {
  const auto on_gpu = [](const TensorRef& tensor) { return tensor.device != nullptr; };
  if (std::any_of(request.tensors.begin(), request.tensors.end(), on_gpu)) {
    return RoundTrip(std::move(request), std::move(done));
  }
  const auto named = std::make_shared<NamedRequest>(components_.requests.Build(std::move(request), std::move(done)));
  const auto submit = [this, named] {
    components_.given_up_requests.BeforeSubmit(named->announcement.name);
    components_.named.Submit(std::move(*named));
  };
  SubmitWork([this, submit] { components_.join.RunOrHold(submit); }, named->done);
}

void EngineSession::RoundTrip(Request request, DoneCallback done) {
  HostRoundTrips::Tensors what;
  what.tensors = request.tensors;
  for (const TensorRef& tensor : request.tensors) {
    const bool mine = request.kind == RequestKind::kReducescatter && !tensor.shape.empty();
    const int64_t rows = mine ? RowsOf(tensor.shape[0], topology().size(), topology().rank()).size() : 0;
    what.result_bytes.push_back(mine ? static_cast<size_t>(rows) * tensor.row_bytes() : tensor.bytes());
  }
  auto on_host = [this, request](std::vector<TensorRef> tensors, DoneCallback reduced) mutable {
    request.tensors = std::move(tensors);
    Submit(request, std::move(reduced));
  };
  SubmitWork(
      [this, name = request.name, what, on_host, done] { components_.round_trips.Begin(name, what, on_host, done); },
      done);
}

void EngineSession::Cancel(const std::string& name) {
  engine_.Submit([this, name] {
    if (!engine_.failure().ok()) return;
    components_.cancelled.Add(name);
    components_.given_up_requests.Cancel(name);
  });
}

void EngineSession::BeginPlanned(const PlannedTensor& where) {
  engine_.Submit(
      [this, where] { components_.join.RunOrHold([this, where] { components_.given_up_steps.Begin(where); }); });
}

void EngineSession::Begin(const std::string& name) {
  engine_.Submit(
      [this, name] { components_.join.RunOrHold([this, name] { components_.given_up_requests.BeginRun(name); }); });
}

void EngineSession::Join(int* last, DoneCallback done) {
  const auto join = [this, last, done] { components_.join.Join(last, done); };
  SubmitWork([this, join] { components_.join.RunOrHold(join); }, done);
}

}  // namespace smddp
