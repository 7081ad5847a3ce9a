#include "runtime/engine_session.h"

#include <cstring>

#include "collectives/hierarchical.h"
#include "collectives/p2p/allgather.h"
#include "collectives/p2p/broadcast.h"
#include "core/shape.h"
#include "runtime/carried.h"
#include "runtime/operation_id.h"
#include "runtime/scalings.h"

namespace smddp {
namespace {

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

// A group of tensors that is reduced together: one fused view for each run of equal dtypes.
struct AllreduceJob {
  ReduceOp op = ReduceOp::kSum;
  FusedViews views;
};

std::shared_ptr<AllreduceJob> MakeAllreduceJob(const Fabric& fabric, const AllreduceRequest& request) {
  auto job = std::make_shared<AllreduceJob>();
  const Scalings scalings = ScalingsFor(request.op, request.prescale, request.postscale, fabric.topology.size());
  const std::vector<TensorRef>& tensors = request.tensors;
  for (size_t at = 0; at < tensors.size();) {
    const DType dtype = tensors[at].dtype;
    const DType wire = Narrowed(dtype, request.wire_dtype);
    std::vector<Piece> pieces;
    for (; at < tensors.size() && tensors[at].dtype == dtype; ++at) {
      pieces.push_back({tensors[at].input, tensors[at].output, tensors[at].elements()});
    }
    job->views.push_back(
        std::make_unique<FusedView>(dtype, wire, pieces, scalings.before, scalings.after, fabric.compute));
  }
  job->op = scalings.op;
  return job;
}

TaskPtr BeginAllreduce(const Fabric& fabric, const AllreduceJob& job, uint32_t operation) {
  std::vector<TaskFactory> stages;
  for (const auto& view : job.views) {
    const FusedCall call = {operation, view.get(), job.op};
    const AllreduceAlgorithm& rail = RailAlgorithmFor(fabric, view->elements(), view->wire(), /*places_vary=*/false);
    stages.push_back([&fabric, &rail, call] { return HierarchicalAllreduce(fabric, rail, call); });
  }
  return Sequence(std::move(stages));
}

TaskPtr BeginBroadcast(const Fabric& fabric, const BroadcastRequest& request, uint32_t operation) {
  std::vector<BufferView> buffers;
  for (const TensorRef& tensor : request.tensors) {
    const bool copy = fabric.topology.rank() == request.root && tensor.input != tensor.output && tensor.bytes() > 0;
    if (copy) std::memcpy(tensor.output, tensor.input, tensor.bytes());
    buffers.emplace_back(tensor.output, tensor.bytes());
  }
  return TreeBroadcast(fabric, operation, request.root, std::move(buffers));
}

// The part of a rank that has joined.
Result<TaskPtr> BeginAllreduceOfZeros(const Fabric& fabric, const Announcement& asked, uint32_t operation,
                                      ZeroMemory& zeros, std::shared_ptr<void>* keep) {
  struct Kept {
    std::shared_ptr<AllreduceJob> job;
    std::vector<std::shared_ptr<void>> memory;
  };
  auto kept = std::make_shared<Kept>();
  AllreduceRequest request = {asked.name, {}, asked.op, asked.prescale, asked.postscale, asked.wire_dtype};
  for (size_t i = 0; i < asked.dtypes.size(); ++i) {
    SMDDP_ASSIGN_OR_RETURN(TensorRef tensor,
                           zeros.Tensor(asked.dtypes[i], asked.shapes[i], &kept->memory.emplace_back()));
    request.tensors.push_back(std::move(tensor));
  }
  kept->job = MakeAllreduceJob(fabric, request);
  *keep = kept;
  return BeginAllreduce(fabric, *kept->job, operation);
}

Result<TaskPtr> BeginAllgather(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict) {
  SMDDP_ASSIGN_OR_RETURN(void* result, request.allocate(verdict.dim0_of_rank));
  std::vector<BufferView> blocks;
  std::byte* at = static_cast<std::byte*>(result);
  for (int64_t rows : verdict.dim0_of_rank) {
    blocks.emplace_back(at, static_cast<size_t>(rows) * request.tensor.row_bytes());
    at += blocks.back().size;
  }
  const BufferView& mine = blocks[fabric.topology.rank()];
  if (mine.size > 0) std::memcpy(mine.data, request.tensor.input, mine.size);
  return RingAllgather(fabric, verdict.operation, std::move(blocks));
}

}  // namespace

int64_t TensorRef::elements() const { return ElementCount(shape); }

size_t TensorRef::row_bytes() const {
  if (shape.empty()) return SizeOf(dtype);
  return static_cast<size_t>(ElementCount({shape.begin() + 1, shape.end()})) * SizeOf(dtype);
}

EngineSession::EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& plans)
    : plans_(plans),
      engine_(std::move(parts), env, plans,
              [this](const Announcement& asked, uint32_t operation, ZeroMemory& zeros, std::shared_ptr<void>* keep) {
                return BeginAllreduceOfZeros(engine_.fabric(), asked, operation, zeros, keep);
              }) {
  engine_.Start();
}

Result<int> EngineSession::RegisterPlan(const PlanSpec& spec) {
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

void EngineSession::Join(int* last, DoneCallback done) {
  if (!engine_.Submit([this, last, done] { engine_.Join(last, done); })) done(NotInitialized());
}

void EngineSession::SubmitNamed(NamedRequest request) {
  auto shared = std::make_shared<NamedRequest>(std::move(request));
  if (!engine_.Submit([this, shared] { engine_.SubmitNamed(std::move(*shared)); })) shared->done(NotInitialized());
}

void EngineSession::Allreduce(AllreduceRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kAllreduce, request.name, request.tensors);
  named.announcement.op = request.op;
  named.announcement.prescale = request.prescale;
  named.announcement.postscale = request.postscale;
  named.announcement.wire_dtype = request.wire_dtype;
  const auto job = MakeAllreduceJob(engine_.fabric(), request);
  if (FitsInMessage(job->views)) named.announcement.data = PackAll(job->views);
  named.begin = [this, job](const Verdict& verdict) -> Result<TaskPtr> {
    if (verdict.data.empty()) return BeginAllreduce(engine_.fabric(), *job, verdict.operation);
    SMDDP_RETURN_IF_ERROR(UnpackAll(job->views, verdict.data));
    return TaskPtr();
  };
  named.keep = job;
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

void EngineSession::Broadcast(BroadcastRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kBroadcast, request.name, request.tensors);
  named.announcement.root = request.root;
  named.begin = [this, request = std::move(request)](const Verdict& verdict) -> Result<TaskPtr> {
    return BeginBroadcast(engine_.fabric(), request, verdict.operation);
  };
  named.done = std::move(done);
  SubmitNamed(std::move(named));
}

void EngineSession::Allgather(AllgatherRequest request, DoneCallback done) {
  NamedRequest named;
  named.announcement = Announce(RequestKind::kAllgather, request.name, {request.tensor});
  named.begin = [this, request = std::move(request)](const Verdict& verdict) {
    return BeginAllgather(engine_.fabric(), request, verdict);
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

}  // namespace smddp
