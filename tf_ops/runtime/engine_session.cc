#include "runtime/engine_session.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "collectives/copy.h"
#include "collectives/p2p/allgather.h"
#include "collectives/p2p/alltoall.h"
#include "collectives/p2p/broadcast.h"
#include "core/log.h"
#include "core/shape.h"
#include "runtime/carried.h"
#include "runtime/operation_id.h"
#include "runtime/reduce_job.h"

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

TaskPtr BeginBroadcast(const Fabric& fabric, const BroadcastRequest& request, uint32_t operation) {
  const int root = fabric.topology.rank_of_global(request.root);
  std::vector<BufferView> buffers;
  std::vector<TaskFactory> stages;
  for (const TensorRef& tensor : request.tensors) {
    const BufferView output = {tensor.output, tensor.bytes()};
    if (fabric.topology.rank() == root) stages.push_back([output, from = tensor.input] { return Copy(output, from); });
    buffers.push_back(output);
  }
  stages.push_back([&fabric, operation, root, buffers = std::move(buffers)] {
    return TreeBroadcast(fabric, operation, root, buffers);
  });
  return Sequence(std::move(stages));
}

// What `announcement` says in brief.
VerifiedCall Describe(const Fabric& fabric, const Announcement& announcement, const std::vector<TensorRef>& tensors) {
  VerifiedCall call;
  call.kind = announcement.kind;
  call.name = std::string(NameOf(announcement.kind)) + " '" + announcement.name + "'";
  call.tensors = tensors;
  call.op = announcement.op;
  call.prescale = announcement.prescale;
  call.postscale = announcement.postscale;
  call.wire_dtype = announcement.wire_dtype;
  call.splits = announcement.splits;
  if (announcement.kind == RequestKind::kBroadcast) call.root = fabric.topology.rank_of_global(announcement.root);
  return call;
}

// `job` is what the request was made of.
Result<TaskPtr> BeginReduction(const Fabric& fabric, const ReduceJob& job, const Verdict& verdict) {
  if (verdict.data.empty()) return BeginReduce(fabric, job, verdict.operation);
  SMDDP_RETURN_IF_ERROR(UnpackAll(job.views, verdict.data));
  return TaskPtr();
}

// The part of a rank that has joined.
Result<TaskPtr> BeginAllreduceOfZeros(const Fabric& fabric, Verifier& verifier, const Verdict& verdict,
                                      ZeroMemory& zeros, std::shared_ptr<void>* keep) {
  const Announcement& asked = verdict.request;
  struct Kept {
    std::shared_ptr<ReduceJob> job;
    std::vector<std::shared_ptr<void>> memory;
  };
  auto kept = std::make_shared<Kept>();
  AllreduceRequest request = {asked.name, {}, asked.op, asked.prescale, asked.postscale, asked.wire_dtype};
  for (size_t i = 0; i < asked.dtypes.size(); ++i) {
    SMDDP_ASSIGN_OR_RETURN(TensorRef tensor,
                           zeros.Tensor(asked.dtypes[i], asked.shapes[i], &kept->memory.emplace_back()));
    request.tensors.push_back(std::move(tensor));
  }
  kept->job = MakeReduceJob(fabric, request, /*only_my_rows=*/false);
  *keep = kept;
  const auto begin = [&] { return BeginReduction(fabric, *kept->job, verdict); };
  if (!verifier.on()) return begin();
  const VerifiedCall call = Describe(fabric, asked, request.tensors);
  return verifier.Begin(verifier.Watch(&call), verdict.operation, begin);
}

// The verdict's rows decide what is copied and received.
Status CheckRows(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict) {
  const size_t size = static_cast<size_t>(fabric.topology.size());
  bool fits = verdict.dim0_of_rank.size() == request.tensors.size() * size;
  for (size_t i = 0; fits && i < verdict.dim0_of_rank.size(); ++i) {
    const TensorRef& tensor = request.tensors[i / size];
    const bool mine = static_cast<int>(i % size) == fabric.topology.rank();
    const int64_t most = kMostElements / std::max<int64_t>(1, static_cast<int64_t>(tensor.row_bytes()));
    fits = mine ? verdict.dim0_of_rank[i] == tensor.shape[0] : verdict.dim0_of_rank[i] <= most;
  }
  if (fits) return Status::Ok();
  return Status(Code::kInternal, "The rows of the ranks for allgather '" + request.name +
                                     "' do not fit the request. Do all ranks run the same version of smddp_tf?");
}

// Rings one after the other; all results are allocated first, so that memory that lacks is known before anything moves.
Result<TaskPtr> BeginAllgather(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict,
                               Verification* watched) {
  SMDDP_RETURN_IF_ERROR(CheckRows(fabric, request, verdict));
  std::vector<TaskFactory> rings;
  auto dim0 = verdict.dim0_of_rank.begin();
  for (size_t i = 0; i < request.tensors.size(); ++i, dim0 += fabric.topology.size()) {
    const TensorRef& tensor = request.tensors[i];
    const std::vector<int64_t> dim0_of_rank(dim0, dim0 + fabric.topology.size());
    SMDDP_ASSIGN_OR_RETURN(void* result, request.allocate(static_cast<int>(i), dim0_of_rank));
    if (watched != nullptr) watched->SetResult(static_cast<int>(i), result, dim0_of_rank);
    std::vector<BufferView> blocks;
    std::byte* at = static_cast<std::byte*>(result);
    for (int64_t rows : dim0_of_rank) {
      blocks.emplace_back(at, static_cast<size_t>(rows) * tensor.row_bytes());
      at += blocks.back().size;
    }
    const BufferView mine = blocks[fabric.topology.rank()];
    rings.push_back([mine, from = tensor.input] { return Copy(mine, from); });
    rings.push_back([&fabric, operation = verdict.operation, blocks = std::move(blocks)] {
      return RingAllgather(fabric, operation, blocks);
    });
  }
  return Sequence(std::move(rings));
}

TaskPtr BeginAlltoall(const Fabric& fabric, const AlltoallRequest& request, const Verdict& verdict,
                      const VerificationPtr& watched) {
  AlltoallCall call;
  call.operation = verdict.operation;
  call.input = request.tensor.input;
  call.row_bytes = request.tensor.row_bytes();
  const int size = fabric.topology.size();
  call.splits = request.even_split ? std::vector<int64_t>(size, request.tensor.shape[0] / size) : request.splits;
  call.allocate = [watched, allocate = request.allocate](const std::vector<int64_t>& received) -> Result<void*> {
    SMDDP_ASSIGN_OR_RETURN(void* result, allocate(received));
    if (watched != nullptr) watched->SetResult(0, result, received);
    return result;
  };
  return PairwiseAlltoall(fabric, std::move(call));
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
  const int id = plans_.NumberOf(spec);
  std::lock_guard<std::mutex> lock(mutex_);
  if (registered_.count(id) != 0) return id;
  if (static_cast<int>(registered_.size()) >= kMaxPlans) return TooManyPlans();
  registered_.insert(id);
  if (!engine_.Submit([this, id] { engine_.AddPlan(id); })) return NotInitialized();
  return id;
}

void EngineSession::ReducePlanned(int plan, int index, const TensorRef& tensor, DoneCallback done) {
  auto work = [this, plan, index, tensor, done]() mutable {
    engine_.ReducePlanned(plan, index, tensor, std::move(done));
  };
  if (!engine_.Submit(std::move(work))) done(NotInitialized());
}

void EngineSession::Cancel(const std::string& name) {
  engine_.Submit([this, name] { engine_.Cancel(name); });
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

void EngineSession::SubmitReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done) {
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
