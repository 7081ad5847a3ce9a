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

// No task: the verdict contained the result.
Result<TaskPtr> BeginReduction(const Fabric& fabric, const ReduceJob& job, const Verdict& verdict) {
  if (verdict.data.empty()) return BeginReduce(fabric, job, verdict.operation);
  SMDDP_RETURN_IF_ERROR(UnpackAll(job.views, verdict.data));
  return TaskPtr();
}

Result<TaskPtr> BeginBroadcast(const Fabric& fabric, const Request& request, const Verdict& verdict, VerifiedCall*) {
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
  stages.push_back([&fabric, operation = verdict.operation, root, bytes, buffers = std::move(buffers)] {
    if (TreeIsFaster(fabric, bytes)) return TreeBroadcast(fabric, operation, root, buffers);
    std::vector<std::vector<BufferView>> blocks(fabric.topology.size());
    blocks[root] = buffers;
    return HierarchicalAllgather(fabric, operation, blocks);
  });
  return Sequence(std::move(stages));
}

// Checks the verdict's rows, which determine what is copied and received.
Status CheckRows(const Fabric& fabric, const Request& request, const Verdict& verdict) {
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
Result<TaskPtr> BeginAllgather(const Fabric& fabric, const Request& request, const Verdict& verdict,
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

Result<TaskPtr> BeginAlltoall(const Fabric& fabric, const Request& request, const Verdict& verdict,
                              VerifiedCall* verified) {
  const TensorRef& tensor = request.tensors[0];
  AlltoallCall call;
  call.operation = verdict.operation;
  call.input = tensor.input;
  call.row_bytes = tensor.row_bytes();
  const int size = fabric.topology.size();
  call.splits = request.even_split ? std::vector<int64_t>(size, tensor.shape[0] / size) : request.splits;
  call.allocate = [verified, allocate = request.allocate](const std::vector<int64_t>& received) -> Result<void*> {
    SMDDP_ASSIGN_OR_RETURN(void* result, allocate(0, received));
    if (verified != nullptr) verified->SetResult(0, result, received);
    return result;
  };
  return PairwiseAlltoall(fabric, std::move(call));
}

}  // namespace

std::optional<VerifiedCall> RequestBuilder::Describe(const Announcement& announcement,
                                                     const std::vector<TensorRef>& tensors) const {
  if (!verifier_.on()) return std::nullopt;
  VerifiedCall call(announcement.kind);
  static_cast<Collective&>(call) = announcement;
  call.name = std::string(NameOf(announcement.kind)) + " '" + announcement.name + "'";
  call.tensors = tensors;
  if (announcement.kind == RequestKind::kBroadcast) call.root = fabric_.topology.rank_of_global(announcement.root);
  return call;
}

NamedRequest RequestBuilder::Build(Request request, DoneCallback done) const {
  request.wire_dtype = WireFor(request.wire_dtype, NodeRate(fabric_));
  NamedRequest named;
  named.done = std::move(done);
  Announcement& announcement = named.announcement;
  static_cast<Collective&>(announcement) = request;
  for (const TensorRef& tensor : request.tensors) announcement.tensors.push_back({tensor.dtype, tensor.shape});
  Begin begin;
  if (request.kind == RequestKind::kAllreduce || request.kind == RequestKind::kReducescatter) {
    const auto job = MakeReduceJob(fabric_, request, MayBeFused(announcement));
    if (FitsInMessage(job->views, job->op)) announcement.data = PackAll(job->views);
    if (request.kind == RequestKind::kAllreduce) named.tensors = request.tensors;
    named.keep = job;
    begin = [this, job](const Verdict& verdict, VerifiedCall*) { return BeginReduction(fabric_, *job, verdict); };
  } else if (request.kind == RequestKind::kBarrier) {
    named.begin = [](const Verdict&) -> Result<TaskPtr> { return TaskPtr(); };
    return named;
  } else {
    if (request.kind == RequestKind::kAllgather) announcement.data = PackToGather(request.tensors);
    const auto move = request.kind == RequestKind::kBroadcast   ? BeginBroadcast
                      : request.kind == RequestKind::kAllgather ? BeginAllgather
                                                                : BeginAlltoall;
    begin = [this, request, move](const Verdict& verdict, VerifiedCall* verified) {
      return move(fabric_, request, verdict, verified);
    };
  }
  named.begin = [this, call = Describe(announcement, request.tensors), begin](const Verdict& verdict) {
    return verifier_.Begin(call, verdict.operation, [&](VerifiedCall* verified) { return begin(verdict, verified); });
  };
  return named;
}

NamedRequest RequestBuilder::Fused(std::vector<NamedRequest> requests) const {
  NamedRequest fused;
  fused.announcement.kind = RequestKind::kAllreduce;
  fused.submitted_ns = requests.front().submitted_ns;
  Request all(RequestKind::kAllreduce, "", {}, requests.front().announcement);
  for (const NamedRequest& each : requests) {
    all.tensors.insert(all.tensors.end(), each.tensors.begin(), each.tensors.end());
    fused.submitted_ns = std::min(fused.submitted_ns, each.submitted_ns);
  }
  const auto job = MakeReduceJob(fabric_, all, /*places_vary=*/true);
  fused.begin = [this, job](const Verdict& verdict) { return BeginReduction(fabric_, *job, verdict); };
  fused.keep = job;
  fused.done = [requests = std::move(requests)](const Status& status) {
    for (const NamedRequest& each : requests) each.done(status);
  };
  return fused;
}

Result<TaskPtr> RequestBuilder::BeginZeros(const Verdict& verdict, ZeroMemory& zeros,
                                           std::shared_ptr<void>* keep) const {
  const Announcement& asked = verdict.request;
  const auto kept = std::make_shared<std::vector<std::shared_ptr<void>>>();
  Request request(RequestKind::kAllreduce, asked.name, {}, asked);
  for (const TensorSpec& each : asked.tensors) {
    SMDDP_ASSIGN_OR_RETURN(TensorRef tensor, zeros.Tensor(each.dtype, each.shape, &kept->emplace_back()));
    request.tensors.push_back(std::move(tensor));
  }
  const auto job = MakeReduceJob(fabric_, request, MayBeFused(asked));
  kept->push_back(job);
  *keep = kept;
  return verifier_.Begin(Describe(asked, request.tensors), verdict.operation,
                         [&](VerifiedCall*) { return BeginReduction(fabric_, *job, verdict); });
}

}  // namespace smddp
