#include "ops/compiled_call.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string_view>
#include <type_traits>

namespace smddp::ops {
namespace {

// The number is odd, unlike those of graphs (ops/collective_kernel.cc).
uint64_t NextRun() {
  static std::atomic<uint64_t> calls{0};
  return calls.fetch_add(2) + 1;
}

void ReduceGradients(Session& session, const CompiledCall& call, const std::vector<TensorRef>& tensors,
                     DoneCallback done) {
  if (tensors.size() != call.indices.size()) {
    return done(Status(Reason::kInternal, "Expected one index for each gradient of '", call.name, "'."));
  }
  const auto run = std::make_shared<GradientRun>(session, call, /*early=*/true);
  for (size_t i = 0; i < tensors.size(); ++i) run->Start(i, tensors[i]);
  run->Finish(tensors, std::move(done));
}

Status CheckEqualRows(const Topology& topology, const std::string& name, const std::vector<int64_t>& dim0_of_rank) {
  for (size_t rank = 1; rank < dim0_of_rank.size(); ++rank) {
    if (dim0_of_rank[rank] == dim0_of_rank[0]) continue;
    return Status(Reason::kBadArgument,
                  "hvd.allgather in a function compiled by XLA needs the same shape on all ranks, because XLA must "
                  "know the shape of the result beforehand. Received for '",
                  name, "': ", dim0_of_rank[0], " rows on rank ", topology.global_rank(0), " and ", dim0_of_rank[rank],
                  " rows on rank ", topology.global_rank(static_cast<int>(rank)),
                  ". Call it outside of the compiled function, or pad to a common length; for rows of tf.IndexedSlices "
                  "use sparse_as_dense=True.");
  }
  return Status::Ok();
}

// Every rank sees the rows of all ranks, so all reach the same verdict. When it is an error the rows are collected
// into scratch memory and dropped: an error in the middle would end the session.
void Allgather(Session& session, Request request, DoneCallback done) {
  struct State {
    Status verdict;
    std::vector<char> scratch;
  };
  auto state = std::make_shared<State>();
  const TensorRef& tensor = request.tensors.front();
  request.allocate = [state, &topology = session.topology(), name = request.name, output = tensor.output,
                      row_bytes = tensor.row_bytes()](int, const std::vector<int64_t>& dim0_of_rank) -> Result<void*> {
    state->verdict = CheckEqualRows(topology, name, dim0_of_rank);
    if (state->verdict.ok()) return output;
    const int64_t rows = std::accumulate(dim0_of_rank.begin(), dim0_of_rank.end(), int64_t{0});
    state->scratch.resize(static_cast<size_t>(rows) * row_bytes);
    return static_cast<void*>(state->scratch.data());
  };
  session.Submit(std::move(request), [state, done = std::move(done)](const Status& status) {
    done(status.ok() ? state->verdict : status);
  });
}

// XLA fixes the shapes of all results when it compiles, so it cannot follow a change of the number of ranks; a buffer
// would be too small.
Status CheckRanks(const Topology& topology, const CompiledCall& call) {
  const bool fits = (call.size == 0 || call.size == topology.size()) && (call.rank < 0 || call.rank == topology.rank());
  if (fits) return Status::Ok();
  const auto words = [&call](int size, int rank) {
    return std::to_string(size) + " ranks" + (call.rank < 0 ? "" : ", as rank " + std::to_string(rank));
  };
  return Status(Reason::kBadState, "The shapes of '", call.name, "' were compiled by XLA for ",
                words(call.size, call.rank), ". Received: a call with ", words(topology.size(), topology.rank()),
                ". After a change of the number of ranks re-create the tf.function (or compile the model again), or "
                "call hvd.allgather and hvd.reducescatter outside of it.");
}

}  // namespace

GradientRun::GradientRun(Session& session, const CompiledCall& call, bool early)
    : session_(session), call_(call), early_(early), run_(NextRun()), missing_(call.indices.size() + 1) {}

void GradientRun::Start(size_t place, const TensorRef& gradient) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    started_.emplace_back(place, gradient.output);
  }
  if (early_) Reduce(place, gradient);
}

bool GradientRun::Finish(const std::vector<TensorRef>& gradients, DoneCallback done) {
  bool stayed = true;
  for (const auto& [place, address] : started_) stayed = stayed && address == gradients[place].output;
  done_ = std::move(done);
  if (!early_) {
    for (const auto& [place, address] : started_) Reduce(place, gradients[place]);
  }
  End(stayed || !early_
          ? Status::Ok()
          : Status(Reason::kInternal, "XLA has moved gradients of '", call_.name, "' while they were being reduced."));
  return stayed;
}

void GradientRun::Reduce(size_t place, const TensorRef& gradient) {
  session_.ReducePlanned({call_.plan, call_.indices[place], call_.site, call_.alone, run_}, gradient,
                         [self = shared_from_this()](const Status& status) { self->End(status); });
}

void GradientRun::End(const Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok() && first_error_.ok()) first_error_ = status;
    if (--missing_ > 0) return;
  }
  done_(first_error_);
}

CompiledCall ReadCompiledCall(tensorflow::OpKernelConstruction* construction) {
  CompiledCall call;
  const auto read = [construction](const char* name, auto* value) {
    *value = ReadAttribute<std::decay_t<decltype(*value)>>(construction, name);
  };
  // In the order of RequestKind. TensorFlow accepts no others (ops/kernels/registrations.cc).
  constexpr std::string_view kKinds[] = {"allreduce", "broadcast", "allgather", "", "reduce_gradients"};
  std::string kind;
  read("kind", &kind);
  call.kind = static_cast<RequestKind>(std::find(std::begin(kKinds), std::end(kKinds), kind) - std::begin(kKinds));
  read("tensor_name", &call.name);
  read("plan", &call.plan);
  read("site", &call.site);
  read("alone", &call.alone);
  call.name = NameAt(call.name, call.site);
  read("indices", &call.indices);
  read("root_rank", &call.root);
  read("process_set", &call.process_set);
  read("gathered_ranks", &call.size);
  read("traced_rank", &call.rank);
  if (call.kind == RequestKind::kAllreduce) call.SetArithmetic(ReadArithmetic(construction));
  return call;
}

void StartCompiledCall(Session& session, const CompiledCall& call, std::vector<TensorRef> tensors, DoneCallback done) {
  if (const Status status = CheckRanks(session.topology(), call); !status.ok()) return done(status);
  if (call.kind == RequestKind::kPlan) return ReduceGradients(session, call, tensors, std::move(done));
  Request request;
  static_cast<Collective&>(request) = call;
  request.tensors = std::move(tensors);
  if (call.kind == RequestKind::kAllgather) return Allgather(session, std::move(request), std::move(done));
  session.Submit(std::move(request), std::move(done));
}

}  // namespace smddp::ops
