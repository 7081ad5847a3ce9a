#include "runtime/session/engine_session.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "core/process/log.h"
#include "core/shard.h"
#include "runtime/named/session_tasks.h"

namespace smddp {
namespace {

// The time limit for other ranks to close their parts of the timeline.
constexpr std::chrono::seconds kTimelinePatience(10);

}  // namespace

SessionComponents::SessionComponents(Engine& engine, FabricParts& parts, RunningTasks& tasks, const Env& env,
                                     const PlanRegistry& registry, PlanRetirement::Resume resume)
    : verifier(parts.fabric(), env.verify),
      rounds(parts.fabric().topology.size()),
      devices(parts.fabric(), TheDevices(), env.gpu_stage, env.gpu_direct),
      round_trips(engine),
      named(engine, parts.fabric().compute, rounds),
      device_paths(engine, parts.fabric(), named, devices),
      planned(engine, parts.fabric(), env, registry, named, device_paths, verifier),
      given_up(engine, planned),
      retirement(engine, planned, device_paths, named.coordinator(), rounds, std::move(resume)),
      join(engine, rounds, named, planned, given_up,
           [this, &parts](const Verdict& verdict, ZeroMemory& zeros, std::shared_ptr<void>* keep) {
             return BeginAllreduceOfZeros(parts.fabric(), verifier, verdict, zeros, keep);
           }),
      timeline(engine),
      exception_notice(engine),
      stalls(engine, env, tasks, named, planned, join),
      cancelled(engine, stalls.report()) {
  named.SetReaders(&device_paths, &join);
  engine.Add(&devices);
  engine.Add(&round_trips);
  engine.Add(&named, {ControlType::kAnnouncement, ControlType::kVerdict, ControlType::kRequestGivenUp});
  engine.Add(&device_paths);
  engine.Add(&planned, {ControlType::kPlanOrder});
  engine.Add(&given_up, {ControlType::kStepGivenUp});
  engine.Add(&retirement, {ControlType::kPlanRetirement});
  engine.Add(&join, {ControlType::kJoinNotice, ControlType::kJoinOver});
  engine.Add(&timeline, {ControlType::kTimeline});
  engine.Add(&exception_notice, {ControlType::kExceptionNotice}, ComponentTable::Delivery::kAlways);
  engine.Add(&stalls, {ControlType::kStall}, ComponentTable::Delivery::kAlways);
  engine.Add(&cancelled);
}

EngineSession::EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& registry,
                             Engine::FailureCallback on_failure)
    : registry_(registry),
      parts_(std::move(parts)),
      engine_(*parts_, tasks_, env.heartbeat_timeout_s, std::move(on_failure)),
      components_(engine_, *parts_, tasks_, env, registry,
                  [this](Plan::KeptArrival kept) { ReduceNow(kept.where, kept.tensor, std::move(kept.done)); }),
      builder_(parts_->fabric(), components_.verifier) {
  engine_.Start();
}

EngineSession::~EngineSession() { engine_.Stop(); }

void EngineSession::Fail(const Status& why) {
  engine_.Submit([this, why] { engine_.Fail(why); });
}

SessionStats EngineSession::Stats() const {
  SessionStats stats;
  stats.planned_buckets = components_.planned.buckets_done();
  stats.named_requests = components_.named.done();
  stats.plans = components_.planned.plans().known();
  stats.node_bytes_sent = parts_->node().bytes_published();
  stats.rail_bytes_sent = parts_->rail_bytes();
  stats.engine_wakeups = engine_.pace().wakeups();
  stats.arena_bytes = static_cast<int64_t>(parts_->arena_bytes());
  if (topology().node_count() > 1) {
    stats.rail_latency_us = rail().link.latency_s * 1e6;
    stats.rail_bandwidth_mbps = rail().link.bytes_per_s * 8e-6;
  }
  return stats;
}

// --- Gradients of plans ---

Result<int> EngineSession::RegisterPlan(const PlanSpec& spec) {
  if (spec.op == ReduceOp::kAdasum) {
    return Status(Reason::kBadArgument, "Adasum cannot be used with plans: its tensors are matched by name.");
  }
  return registry_.NumberOf(spec);
}

void EngineSession::ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  auto work = [this, where, tensor, done]() mutable { ReduceNow(where, tensor, std::move(done)); };
  if (!engine_.Submit(std::move(work))) done(NotInitialized());
}

void EngineSession::ReduceNow(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  if (components_.join.holds_requests()) {
    return components_.join.Hold([this, where, tensor, done = std::move(done)] { ReduceNow(where, tensor, done); });
  }
  components_.given_up.BeforeArrival(where);
  if (components_.planned.Reduce(where, tensor, std::move(done))) components_.join.OnStepBegun(where);
}

void EngineSession::CancelPlanned(const PlannedTensor& where) {
  engine_.Submit([this, where] {
    if (!engine_.failure().ok()) return;
    components_.cancelled.Add("gradient " + std::to_string(where.index));
    components_.given_up.Cancel(where);
  });
}

// --- Requests by name ---

void EngineSession::SubmitNow(NamedRequest request) {
  if (!components_.join.holds_requests()) return components_.named.Submit(std::move(request));
  components_.join.Hold(
      [this, shared = std::make_shared<NamedRequest>(std::move(request))] { SubmitNow(std::move(*shared)); });
}

void EngineSession::Submit(NamedRequest request) {
  auto shared = std::make_shared<NamedRequest>(std::move(request));
  if (!engine_.Submit([this, shared] { SubmitNow(std::move(*shared)); })) shared->done(NotInitialized());
}

void EngineSession::Cancel(const std::string& name) {
  engine_.Submit([this, name] {
    if (!engine_.failure().ok()) return;
    components_.cancelled.Add(name);
    components_.named.Cancel(name);
  });
}

void EngineSession::Join(int* last, DoneCallback done) {
  if (!engine_.Submit([this, last, done] { JoinNow(last, done); })) done(NotInitialized());
}

void EngineSession::JoinNow(int* last, DoneCallback done) {
  if (!components_.join.holds_requests()) return components_.join.Join(last, std::move(done));
  components_.join.Hold([this, last, done] { JoinNow(last, done); });
}

void EngineSession::Allreduce(AllreduceRequest request, DoneCallback done) {
  SubmitReduction(RequestKind::kAllreduce, request, std::move(done));
}

void EngineSession::Reducescatter(AllreduceRequest request, DoneCallback done) {
  SubmitReduction(RequestKind::kReducescatter, request, std::move(done));
}

void EngineSession::SubmitReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done) {
  const auto on_gpu = [](const TensorRef& tensor) { return tensor.device != nullptr; };
  const bool stage = std::any_of(request.tensors.begin(), request.tensors.end(), on_gpu);
  if (stage) return ReduceOnHost(kind, request, std::move(done));
  Submit(builder_.Reduction(kind, request, std::move(done)));
}

void EngineSession::ReduceOnHost(RequestKind kind, const AllreduceRequest& request, DoneCallback done) {
  HostRoundTrips::Tensors what;
  what.tensors = request.tensors;
  for (const TensorRef& tensor : request.tensors) {
    const bool mine = kind == RequestKind::kReducescatter && !tensor.shape.empty();
    const int64_t rows = mine ? RowsOf(tensor.shape[0], topology().size(), topology().rank()).size() : 0;
    what.result_bytes.push_back(mine ? static_cast<size_t>(rows) * tensor.row_bytes() : tensor.bytes());
  }
  auto on_host = [this, kind, request = AllreduceRequest(request)](std::vector<TensorRef> tensors,
                                                                   DoneCallback reduced) mutable {
    request.tensors = std::move(tensors);
    SubmitReduction(kind, request, std::move(reduced));
  };
  auto work = [this, name = request.name, what, on_host, done] {
    components_.round_trips.Begin(name, what, on_host, done);
  };
  if (!engine_.Submit(std::move(work))) done(NotInitialized());
}

void EngineSession::Broadcast(BroadcastRequest request, DoneCallback done) {
  Submit(builder_.Broadcast(std::move(request), std::move(done)));
}

void EngineSession::Allgather(AllgatherRequest request, DoneCallback done) {
  Submit(builder_.Allgather(std::move(request), std::move(done)));
}

void EngineSession::Alltoall(AlltoallRequest request, DoneCallback done) {
  Submit(builder_.Alltoall(std::move(request), std::move(done)));
}

void EngineSession::Barrier(BarrierRequest request, DoneCallback done) {
  Submit(builder_.Barrier(request, std::move(done)));
}

// --- Exceptions that nobody caught ---

void EngineSession::Raise(const std::string& exception) {
  engine_.Submit([this, exception] { components_.exception_notice.Raise(exception); });
}

void EngineSession::TellTracebackPrinted() {
  engine_.Submit([this] { components_.exception_notice.TracebackPrinted(); });
}

RaisedState EngineSession::Raised() const {
  const ExceptionNotice& notice = components_.exception_notice;
  return {notice.acknowledged() >= topology().size() - 1, notice.raised_elsewhere(), notice.printed_elsewhere()};
}

// --- Timeline ---

Status EngineSession::StartTimeline(const std::string& path, bool mark_cycles) {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  if (timeline_asked_) {
    return Status(Reason::kBadArgument,
                  "A timeline has been started already (by hvd.start_timeline or SMDDP_TIMELINE). Call "
                  "hvd.stop_timeline() first. Received: '" +
                      path + "'.");
  }
  auto started = std::make_shared<std::promise<Status>>();
  auto answer = started->get_future();  // returns soon: the engine asks no other rank
  auto work = [this, started, path, mark_cycles] {
    const Status& failure = engine_.failure();
    started->set_value(failure.ok() ? components_.timeline.Start(path, mark_cycles) : failure);
  };
  if (!engine_.Submit(std::move(work))) return NotInitialized();
  const Status status = answer.get();
  timeline_asked_ = status.ok();
  return status;
}

TimelineParts EngineSession::StopTimeline() {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  timeline_asked_ = false;
  return FinishTimeline(/*leaving=*/false);
}

void EngineSession::Stop(bool at_exit) {
  {
    std::lock_guard<std::mutex> lock(timeline_mutex_);
    (void)FinishTimeline(/*leaving=*/true);
  }
  engine_.Stop(at_exit);
  if (std::exchange(stopped_, true)) return;
  const SessionStats stats = Stats();
  Log(LogLevel::kDebug, std::string("the session") + (topology().is_process_set() ? " of a process set" : "") +
                            " ends: " + std::to_string(stats.named_requests) + " requests, " +
                            std::to_string(stats.planned_buckets) + " gradient buckets, " +
                            std::to_string(stats.node_bytes_sent) + " bytes to ranks of this node and " +
                            std::to_string(stats.rail_bytes_sent) + " to other nodes");
}

TimelineParts EngineSession::FinishTimeline(bool leaving) {
  const auto finished = std::make_shared<std::promise<TimelineParts>>();
  auto answer = finished->get_future();
  const bool asked = engine_.Submit([this, finished, leaving] {
    components_.timeline.Stop(leaving, [finished](TimelineParts parts) { finished->set_value(std::move(parts)); });
  });
  if (!asked) return {};
  if (answer.wait_for(kTimelinePatience) != std::future_status::ready) {
    (void)engine_.Submit([this] { components_.timeline.GiveUp(); });
  }
  return answer.wait_for(kTimelinePatience) == std::future_status::ready ? answer.get() : TimelineParts();
}

}  // namespace smddp
