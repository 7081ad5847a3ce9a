#include "runtime/named/request_builder.h"

#include <string>
#include <utility>

#include "runtime/named/inline_reduction.h"
#include "runtime/named/reduce_job.h"
#include "runtime/named/session_tasks.h"

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

}  // namespace

NamedRequest RequestBuilder::Reduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done) {
  NamedRequest named = RequestOf(kind, request.name, request.tensors, std::move(done));
  named.announcement.SetArithmetic(request);
  const auto job = MakeReduceJob(fabric_, request, /*only_my_rows=*/kind == RequestKind::kReducescatter);
  if (FitsInMessage(job->views, job->op)) named.announcement.data = PackAll(job->views);
  named.begin = [this, job,
                 call = Describe(fabric_, verifier_, named.announcement, request.tensors)](const Verdict& verdict) {
    return verifier_.Begin(call, verdict.operation,
                           [&](VerifiedCall*) { return BeginReduction(fabric_, *job, verdict); });
  };
  named.keep = job;
  return named;
}

NamedRequest RequestBuilder::Broadcast(BroadcastRequest request, DoneCallback done) {
  NamedRequest named = RequestOf(RequestKind::kBroadcast, request.name, request.tensors, std::move(done));
  named.announcement.root = request.root;
  const auto call = Describe(fabric_, verifier_, named.announcement, request.tensors);
  named.begin = [this, call, request = std::move(request)](const Verdict& verdict) {
    return verifier_.Begin(call, verdict.operation, [&](VerifiedCall*) -> Result<TaskPtr> {
      return BeginBroadcast(fabric_, request, verdict.operation);
    });
  };
  return named;
}

NamedRequest RequestBuilder::Allgather(AllgatherRequest request, DoneCallback done) {
  NamedRequest named = RequestOf(RequestKind::kAllgather, request.name, request.tensors, std::move(done));
  const auto call = Describe(fabric_, verifier_, named.announcement, request.tensors);
  named.begin = [this, call, request = std::move(request)](const Verdict& verdict) {
    return verifier_.Begin(call, verdict.operation,
                           [&](VerifiedCall* verified) { return BeginAllgather(fabric_, request, verdict, verified); });
  };
  return named;
}

NamedRequest RequestBuilder::Alltoall(AlltoallRequest request, DoneCallback done) {
  NamedRequest named = RequestOf(RequestKind::kAlltoall, request.name, {request.tensor}, std::move(done));
  named.announcement.even_split = request.even_split;
  named.announcement.splits = request.splits;
  const auto call = Describe(fabric_, verifier_, named.announcement, {request.tensor});
  named.begin = [this, call, request = std::move(request)](const Verdict& verdict) {
    return verifier_.Begin(call, verdict.operation, [&](VerifiedCall* verified) -> Result<TaskPtr> {
      return BeginAlltoall(fabric_, request, verdict, verified);
    });
  };
  return named;
}

// A barrier is complete when all ranks have announced it.
NamedRequest RequestBuilder::Barrier(const BarrierRequest& request, DoneCallback done) {
  NamedRequest named = RequestOf(RequestKind::kBarrier, request.name, {}, std::move(done));
  named.begin = [](const Verdict&) -> Result<TaskPtr> { return TaskPtr(); };
  return named;
}

}  // namespace smddp
