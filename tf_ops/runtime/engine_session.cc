#include "runtime/engine_session.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "core/log.h"
#include "core/shape.h"
#include "core/shard.h"
#include "runtime/carried.h"
#include "runtime/operation_id.h"
#include "runtime/reduce_job.h"
#include "runtime/session_tasks.h"

namespace smddp {
namespace {

// Without a piece of another rank's timeline for so long, none will come.
constexpr std::chrono::seconds kTimelinePatience(10);

Announcement Announce(RequestKind kind, const std::string& name, const std::vector<TensorRef>& tensors) {
  Announcement announcement;
  announcement.kind = kind;
  announcement.name = name;
  for (const TensorRef& tensor : tensors) {
    announcement.dtypes.push_back(tensor.dtype);
    announcement.shapes.push_back(tensor.shape);
  }
  return announcement;
}

}  // namespace

int64_t TensorRef::elements() const { return ElementCount(shape); }

size_t TensorRef::row_bytes() const {
  if (shape.empty()) return SizeOf(dtype);
  return static_cast<size_t>(ElementCount({shape.begin() + 1, shape.end()})) * SizeOf(dtype);
}

EngineSession::EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& plans,
                             Engine::FailureCallback on_failure)
    : plans_(plans),
      engine_(
          std::move(parts), env, plans,
          [this](const Verdict& verdict, ZeroMemory& zeros, std::shared_ptr<void>* keep) {
            return BeginAllreduceOfZeros(engine_.fabric(), engine_.verifier(), verdict, zeros, keep);
          },
          std::move(on_failure)) {
  engine_.Start();
}

void EngineSession::Fail(const Status& why) {
  engine_.Submit([this, why] { engine_.Fail(why, /*tell_others=*/true); });
}

Result<int> EngineSession::RegisterPlan(const PlanSpec& spec) {
  if (spec.op == ReduceOp::kAdasum) {
    return Status(Code::kInvalidArgument, "Adasum has no plans: tensors of it are matched by name.");
  }
  return plans_.NumberOf(spec);
}

void EngineSession::ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  auto work = [this, where, tensor, done]() mutable { engine_.ReducePlanned(where, tensor, std::move(done)); };
  if (!engine_.Submit(std::move(work))) done(NotInitialized());
}

void EngineSession::Cancel(const std::string& name) {
  engine_.Submit([this, name] { engine_.Cancel(name); });
}

void EngineSession::CancelPlanned(const PlannedTensor& where) {
  engine_.Submit([this, where] { engine_.CancelPlanned(where); });
}

void EngineSession::Raise(const std::string& exception) {
  engine_.Submit([this, exception] { engine_.last_words().Raise(exception); });
}

void EngineSession::TellShown() {
  engine_.Submit([this] { engine_.last_words().Shown(); });
}

void EngineSession::Join(int* last, DoneCallback done) {
  if (!engine_.Submit([this, last, done] { engine_.Join(last, done); })) done(NotInitialized());
}

void EngineSession::SubmitNamed(NamedRequest request) {
  auto shared = std::make_shared<NamedRequest>(std::move(request));
  if (!engine_.Submit([this, shared] { engine_.SubmitNamed(std::move(*shared)); })) shared->done(NotInitialized());
}

std::shared_ptr<const VerifiedCall> EngineSession::Described(const Announcement& announcement,
                                                             const std::vector<TensorRef>& tensors) {
  if (!engine_.verifier().on()) return nullptr;
  return std::make_shared<VerifiedCall>(Describe(engine_.fabric(), announcement, tensors));
}

void EngineSession::Allreduce(AllreduceRequest request, DoneCallback done) {
  SubmitReduction(RequestKind::kAllreduce, request, std::move(done));
}

void EngineSession::Reducescatter(AllreduceRequest request, DoneCallback done) {
  SubmitReduction(RequestKind::kReducescatter, request, std::move(done));
}

void EngineSession::StageReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done) {
  DeviceStaging::Tensors what;
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
  auto work = [this, name = request.name, what, on_host, done] { engine_.staging().Begin(name, what, on_host, done); };
  if (!engine_.Submit(std::move(work))) done(NotInitialized());
}

void EngineSession::SubmitReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done) {
  const auto on_gpu = [](const TensorRef& tensor) { return tensor.device != nullptr; };
  if (std::any_of(request.tensors.begin(), request.tensors.end(), on_gpu)) {
    return StageReduction(kind, request, std::move(done));
  }
  NamedRequest named;
  named.announcement = Announce(kind, request.name, request.tensors);
  named.announcement.op = request.op;
  named.announcement.prescale = request.prescale;
  named.announcement.postscale = request.postscale;
  named.announcement.wire_dtype = request.wire_dtype;
  const auto job = MakeReduceJob(engine_.fabric(), request, /*only_my_rows=*/kind == RequestKind::kReducescatter);
  if (FitsInMessage(job->views, job->op)) named.announcement.data = PackAll(job->views);
  named.begin = [this, job, call = Described(named.announcement, request.tensors)](const Verdict& verdict) {
    Verifier& verifier = engine_.verifier();
    return verifier.Begin(verifier.Watch(call.get()), verdict.operation,
                          [&] { return BeginReduction(engine_.fabric(), *job, verdict); });
  };
  named.keep = job;
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

void EngineSession::Broadcast(BroadcastRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kBroadcast, request.name, request.tensors);
  named.announcement.root = request.root;
  const auto call = Described(named.announcement, request.tensors);
  named.begin = [this, call, request = std::move(request)](const Verdict& verdict) {
    Verifier& verifier = engine_.verifier();
    return verifier.Begin(verifier.Watch(call.get()), verdict.operation, [&]() -> Result<TaskPtr> {
      return BeginBroadcast(engine_.fabric(), request, verdict.operation);
    });
  };
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

void EngineSession::Allgather(AllgatherRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kAllgather, request.name, request.tensors);
  const auto call = Described(named.announcement, request.tensors);
  named.begin = [this, call, request = std::move(request)](const Verdict& verdict) {
    const VerificationPtr watched = engine_.verifier().Watch(call.get());
    return engine_.verifier().Begin(watched, verdict.operation,
                                    [&] { return BeginAllgather(engine_.fabric(), request, verdict, watched.get()); });
  };
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

void EngineSession::Alltoall(AlltoallRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kAlltoall, request.name, {request.tensor});
  named.announcement.even_split = request.even_split;
  named.announcement.splits = request.splits;
  const auto call = Described(named.announcement, {request.tensor});
  named.begin = [this, call, request = std::move(request)](const Verdict& verdict) {
    const VerificationPtr watched = engine_.verifier().Watch(call.get());
    return engine_.verifier().Begin(watched, verdict.operation, [&]() -> Result<TaskPtr> {
      return BeginAlltoall(engine_.fabric(), request, verdict, watched);
    });
  };
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

void EngineSession::Barrier(BarrierRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kBarrier, request.name, {});
  named.begin = [](const Verdict&) -> Result<TaskPtr> { return TaskPtr(); };  // that all have come is all there is
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

// --- Timeline ---

Status EngineSession::StartTimeline(const std::string& path, bool mark_cycles) {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  if (timeline_asked_) {
    return Status(Code::kInvalidArgument,
                  "A timeline has been started already (by hvd.start_timeline or SMDDP_TIMELINE). Call "
                  "hvd.stop_timeline() first. Received: '" +
                      path + "'.");
  }
  auto started = std::make_shared<std::promise<Status>>();
  auto answer = started->get_future();  // at once: the engine asks no other rank
  auto work = [this, started, path, mark_cycles] { started->set_value(engine_.StartTimeline(path, mark_cycles)); };
  if (!engine_.Submit(std::move(work))) return NotInitialized();
  const Status status = answer.get();
  timeline_asked_ = status.ok();
  return status;
}

Status EngineSession::StopTimeline() {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  timeline_asked_ = false;
  FinishTimeline(/*leaving=*/false);
  return Status::Ok();
}

void EngineSession::Stop(bool at_exit) {
  {
    std::lock_guard<std::mutex> lock(timeline_mutex_);
    FinishTimeline(/*leaving=*/true);
  }
  engine_.Stop(at_exit);
}

void EngineSession::FinishTimeline(bool leaving) {
  auto finished = std::make_shared<std::promise<void>>();
  auto answer = finished->get_future();
  const bool asked = engine_.Submit([this, finished, leaving] {
    const auto done = [finished] { finished->set_value(); };
    leaving ? engine_.timeline().Leave(done) : engine_.timeline().Stop(done);
  });
  if (!asked) return;
  int64_t moved = engine_.timeline().parts_moved();
  while (answer.wait_for(kTimelinePatience) != std::future_status::ready) {
    const int64_t moved_before = std::exchange(moved, engine_.timeline().parts_moved());
    if (moved != moved_before) continue;
    engine_.Submit([this] {
      for (const int rank : engine_.timeline().GiveUp()) {
        Log(LogLevel::kWarning, "The timeline is without rank " + std::to_string(rank) + ", which does not answer.");
      }
    });
  }
}

}  // namespace smddp
