#include "runtime/requests/request_builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/hierarchical.h"
#include "collectives/p2p/alltoall.h"
#include "collectives/p2p/broadcast.h"
#include "core/shape.h"
#include "runtime/requests/inline_data.h"
#include "runtime/requests/reduce_job.h"

namespace smddp {
namespace {

NamedRequest RequestOf(RequestKind kind, const std::string& name, const std::vector<TensorRef>& tensors,
                       DoneCallback done) {
  NamedRequest named;
  named.announcement.kind = kind;
  named.announcement.name = name;
  for (const TensorRef& tensor : tensors) {
    named.announcement.dtypes.push_back(tensor.dtype);
    named.announcement.shapes.push_back(tensor.shape);
  }
  named.done = std::move(done);
  return named;
}

// No task: the verdict contained the result.
Result<TaskPtr> BeginReduction(const Fabric& fabric, const ReduceJob& job, const Verdict& verdict) {
  if (verdict.data.empty()) return BeginReduce(fabric, job, verdict.operation);
  SMDDP_RETURN_IF_ERROR(UnpackAll(job.views, verdict.data));
  return TaskPtr();
}

TaskPtr BeginBroadcast(const Fabric& fabric, const BroadcastRequest& request, uint32_t operation) {
  const int root = fabric.topology.rank_of_global(request.root);
  std::vector<BufferView> buffers;
  std::vector<TaskFactory> stages;
  int64_t bytes = 0;
  for (const TensorRef& tensor : request.tensors) {
    const BufferView output = {tensor.output, tensor.bytes()};
    if (fabric.topology.rank() == root) stages.push_back([output, from = tensor.input] { return Copy(output, from); });
    buffers.push_back(output);
    bytes += static_cast<int64_t>(output.size);
  }
  stages.push_back([&fabric, operation, root, bytes, buffers = std::move(buffers)] {
    if (TreeIsFaster(fabric, bytes)) return TreeBroadcast(fabric, operation, root, buffers);
    std::vector<std::vector<BufferView>> blocks(fabric.topology.size());
    blocks[root] = buffers;
    return HierarchicalAllgather(fabric, operation, blocks);
  });
  return Sequence(std::move(stages));
}

// Checks the verdict's rows, which determine what is copied and received.
Status CheckRows(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict) {
  const size_t size = static_cast<size_t>(fabric.topology.size());
  bool fits = verdict.dim0_of_rank.size() == request.tensors.size() * size;
  for (size_t i = 0; fits && i < verdict.dim0_of_rank.size(); ++i) {
    const TensorRef& tensor = request.tensors[i / size];
    const bool mine = static_cast<int>(i % size) == fabric.topology.rank();
    const int64_t most = kMaxElements / std::max<int64_t>(1, static_cast<int64_t>(tensor.row_bytes()));
    fits = mine ? verdict.dim0_of_rank[i] == tensor.shape[0] : verdict.dim0_of_rank[i] <= most;
  }
  if (fits) return Status::Ok();
  return OtherVersion("The rows of the ranks for allgather '", request.name, "' do not match the request");
}

// All tensors at once. All results are allocated first, so that insufficient memory is an error before any data move.
Result<TaskPtr> BeginAllgather(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict,
                               VerifiedCall* verified) {
  SMDDP_RETURN_IF_ERROR(CheckRows(fabric, request, verdict));
  std::vector<TaskFactory> stages;
  std::vector<std::vector<BufferView>> blocks(fabric.topology.size());
  auto dim0 = verdict.dim0_of_rank.begin();
  for (size_t i = 0; i < request.tensors.size(); ++i, dim0 += fabric.topology.size()) {
    const TensorRef& tensor = request.tensors[i];
    const std::vector<int64_t> dim0_of_rank(dim0, dim0 + fabric.topology.size());
    SMDDP_ASSIGN_OR_RETURN(void* result, request.allocate(static_cast<int>(i), dim0_of_rank));
    if (verified != nullptr) verified->SetResult(static_cast<int>(i), result, dim0_of_rank);
    std::byte* at = static_cast<std::byte*>(result);
    for (int rank = 0; rank < fabric.topology.size(); ++rank) {
      const BufferView block = {at, static_cast<size_t>(dim0_of_rank[rank]) * tensor.row_bytes()};
      blocks[rank].push_back(block);
      at += block.size;
      if (rank == fabric.topology.rank()) stages.push_back([block, from = tensor.input] { return Copy(block, from); });
    }
  }
  if (!verdict.data.empty()) {
    SMDDP_RETURN_IF_ERROR(UnpackGathered(verdict.data, blocks));
    return TaskPtr();
  }
  stages.push_back([&fabric, operation = verdict.operation, blocks = std::move(blocks)] {
    return HierarchicalAllgather(fabric, operation, blocks);
  });
  return Sequence(std::move(stages));
}

TaskPtr BeginAlltoall(const Fabric& fabric, const AlltoallRequest& request, uint32_t operation,
                      VerifiedCall* verified) {
  AlltoallCall call;
  call.operation = operation;
  call.input = request.tensor.input;
  call.row_bytes = request.tensor.row_bytes();
  const int size = fabric.topology.size();
  call.splits = request.even_split ? std::vector<int64_t>(size, request.tensor.shape[0] / size) : request.splits;
  call.allocate = [verified, allocate = request.allocate](const std::vector<int64_t>& received) -> Result<void*> {
    SMDDP_ASSIGN_OR_RETURN(void* result, allocate(received));
    if (verified != nullptr) verified->SetResult(0, result, received);
    return result;
  };
  return PairwiseAlltoall(fabric, std::move(call));
}

}  // namespace

std::optional<VerifiedCall> RequestBuilder::Describe(const Announcement& announcement,
                                                     const std::vector<TensorRef>& tensors) const {
  if (!verifier_.on()) return std::nullopt;
  VerifiedCall call;
  call.SetArithmetic(announcement);
  call.kind = announcement.kind;
  call.name = std::string(NameOf(announcement.kind)) + " '" + announcement.name + "'";
  call.tensors = tensors;
  call.splits = announcement.splits;
  if (announcement.kind == RequestKind::kBroadcast) call.root = fabric_.topology.rank_of_global(announcement.root);
  return call;
}

void RequestBuilder::SetBegin(NamedRequest* named, const std::vector<TensorRef>& tensors, Begin begin) const {
  named->begin = [this, call = Describe(named->announcement, tensors),
                  begin = std::move(begin)](const Verdict& verdict) {
    return verifier_.Begin(call, verdict.operation, [&](VerifiedCall* verified) { return begin(verdict, verified); });
  };
}

NamedRequest RequestBuilder::Reduction(RequestKind kind, AllreduceRequest request, DoneCallback done) const {
  request.wire_dtype = WireFor(request.wire_dtype, NodeRate(fabric_));
  NamedRequest named = RequestOf(kind, request.name, request.tensors, std::move(done));
  named.announcement.SetArithmetic(request);
  const auto job = MakeReduceJob(fabric_, request, /*only_my_rows=*/kind == RequestKind::kReducescatter);
  job->places_vary = MayBeFused(named.announcement);
  if (FitsInMessage(job->views, job->op)) named.announcement.data = PackAll(job->views);
  if (kind == RequestKind::kAllreduce) named.tensors = request.tensors;
  SetBegin(&named, request.tensors,
           [this, job](const Verdict& verdict, VerifiedCall*) { return BeginReduction(fabric_, *job, verdict); });
  named.keep = job;
  return named;
}

NamedRequest RequestBuilder::Fused(std::vector<NamedRequest> requests) const {
  NamedRequest fused;
  fused.announcement.kind = RequestKind::kAllreduce;
  fused.submitted_ns = requests.front().submitted_ns;
  AllreduceRequest all = {requests.front().announcement, "", {}};
  for (const NamedRequest& each : requests) {
    all.tensors.insert(all.tensors.end(), each.tensors.begin(), each.tensors.end());
    fused.submitted_ns = std::min(fused.submitted_ns, each.submitted_ns);
  }
  const auto job = MakeReduceJob(fabric_, all, /*only_my_rows=*/false);
  job->places_vary = true;
  fused.begin = [this, job](const Verdict& verdict) { return BeginReduction(fabric_, *job, verdict); };
  fused.keep = job;
  fused.done = [requests = std::move(requests)](const Status& status) {
    for (const NamedRequest& each : requests) each.done(status);
  };
  return fused;
}

NamedRequest RequestBuilder::Broadcast(BroadcastRequest request, DoneCallback done) const {
  NamedRequest named = RequestOf(RequestKind::kBroadcast, request.name, request.tensors, std::move(done));
  named.announcement.root = request.root;
  SetBegin(&named, request.tensors, [this, request](const Verdict& verdict, VerifiedCall*) {
    return BeginBroadcast(fabric_, request, verdict.operation);
  });
  return named;
}

NamedRequest RequestBuilder::Allgather(AllgatherRequest request, DoneCallback done) const {
  NamedRequest named = RequestOf(RequestKind::kAllgather, request.name, request.tensors, std::move(done));
  named.announcement.data = PackToGather(request.tensors);
  SetBegin(&named, request.tensors, [this, request](const Verdict& verdict, VerifiedCall* verified) {
    return BeginAllgather(fabric_, request, verdict, verified);
  });
  return named;
}

NamedRequest RequestBuilder::Alltoall(AlltoallRequest request, DoneCallback done) const {
  NamedRequest named = RequestOf(RequestKind::kAlltoall, request.name, {request.tensor}, std::move(done));
  named.announcement.even_split = request.even_split;
  named.announcement.splits = request.splits;
  SetBegin(&named, {request.tensor}, [this, request](const Verdict& verdict, VerifiedCall* verified) {
    return BeginAlltoall(fabric_, request, verdict.operation, verified);
  });
  return named;
}

// A barrier is complete when all ranks have announced it.
NamedRequest RequestBuilder::Barrier(const BarrierRequest& request, DoneCallback done) const {
  NamedRequest named = RequestOf(RequestKind::kBarrier, request.name, {}, std::move(done));
  named.begin = [](const Verdict&) -> Result<TaskPtr> { return TaskPtr(); };
  return named;
}

Result<TaskPtr> RequestBuilder::BeginZeros(const Verdict& verdict, ZeroMemory& zeros,
                                           std::shared_ptr<void>* keep) const {
  const Announcement& asked = verdict.request;
  struct Kept {
    std::shared_ptr<ReduceJob> job;
    std::vector<std::shared_ptr<void>> memory;
  };
  auto kept = std::make_shared<Kept>();
  AllreduceRequest request = {asked, asked.name, {}};
  for (size_t i = 0; i < asked.dtypes.size(); ++i) {
    SMDDP_ASSIGN_OR_RETURN(TensorRef tensor,
                           zeros.Tensor(asked.dtypes[i], asked.shapes[i], &kept->memory.emplace_back()));
    request.tensors.push_back(std::move(tensor));
  }
  kept->job = MakeReduceJob(fabric_, request, /*only_my_rows=*/false);
  kept->job->places_vary = MayBeFused(asked);
  *keep = kept;
  return verifier_.Begin(Describe(asked, request.tensors), verdict.operation,
                         [&](VerifiedCall*) { return BeginReduction(fabric_, *kept->job, verdict); });
}

}  // namespace smddp
