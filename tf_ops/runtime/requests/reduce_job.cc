#include "runtime/requests/reduce_job.h"

#include <utility>
#include <vector>

#include "collectives/hierarchical.h"
#include "collectives/node/parts.h"
#include "collectives/rail/adasum.h"
#include "collectives/rail/quantised_exchange.h"
#include "core/slice.h"
#include "runtime/control/scalings.h"

namespace smddp {
namespace {

// The rows before mine, my rows, the rows after them.
void AddPiecesByRows(const TensorRef& tensor, const Topology& topology, std::vector<Piece>* pieces) {
  const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  const Range mine = RowsOf(rows, topology.size(), topology.rank());
  const auto add = [&](int64_t begin, int64_t end, void* output) {
    const auto* from = static_cast<const std::byte*>(tensor.input) + static_cast<size_t>(begin) * tensor.row_bytes();
    const int64_t elements =
        (end - begin) * static_cast<int64_t>(tensor.row_bytes()) / static_cast<int64_t>(SizeOf(tensor.dtype));
    pieces->push_back({from, output, elements});
  };
  add(0, mine.begin, nullptr);
  add(mine.begin, mine.end, tensor.output);
  add(mine.end, rows, nullptr);
}

// The view of a reducescatter to parts; none where the saving is not worth the filling.
std::unique_ptr<FusedView> PartsByRows(const Fabric& fabric, const TensorRef* tensors, size_t count, DType wire,
                                       const Scalings& scalings) {
  const Topology& topology = fabric.topology;
  if (topology.node_count() == 1 || !CheckParts(topology, fabric.chunk_bytes, topology.size()).ok()) return nullptr;
  std::vector<Piece> pieces;
  int64_t elements = 0;
  for (size_t i = 0; i < count; ++i) {
    pieces.push_back({tensors[i].input, tensors[i].output, tensors[i].elements()});
    elements += tensors[i].elements();
  }
  if (elements * static_cast<int64_t>(SizeOf(wire)) <= kMaxInlineBytes) return nullptr;
  const auto part_of = [&](size_t tensor, int place) -> Range {
    const int64_t rows = tensors[tensor].shape.empty() ? 0 : tensors[tensor].shape[0];
    const int64_t each = rows == 0 ? 0 : tensors[tensor].elements() / rows;
    const int local = topology.local_size();
    const Range mine = RowsOf(rows, topology.size(), topology.nodes()[place / local].world_rank(place % local));
    return {mine.begin * each, mine.end * each};
  };
  const Cut cut = {{PartMode::kReduce, topology.size()}, part_of, /*padded=*/false};
  auto view = MakePartedView(fabric, cut, pieces, tensors->dtype, wire, scalings.before, scalings.after);
  return view->elements() < 2 * elements ? std::move(view) : nullptr;
}

}  // namespace

std::shared_ptr<ReduceJob> MakeReduceJob(const Fabric& fabric, const Request& request, bool places_vary) {
  auto job = std::make_shared<ReduceJob>();
  const bool only_my_rows = request.kind == RequestKind::kReducescatter;
  const Scalings scalings = ScalingsFor(request, fabric.topology.size());
  const std::vector<TensorRef>& tensors = request.tensors;
  for (size_t at = 0; at < tensors.size();) {
    const DType dtype = tensors[at].dtype;
    const DType wire = Narrowed(dtype, request.wire_dtype);
    std::vector<Piece> pieces;
    const TensorRef* const first = &tensors[at];
    const auto is_quantised = [&](const TensorRef& tensor) {
      return Quantised(tensor.dtype, tensor.elements(), {request.op, 1.0, 1.0, request.wire_dtype});
    };
    job->quantised.push_back(is_quantised(*first));
    for (; at < tensors.size() && tensors[at].dtype == dtype && is_quantised(tensors[at]) == job->quantised.back();
         ++at) {
      if (only_my_rows) {
        AddPiecesByRows(tensors[at], fabric.topology, &pieces);
      } else {
        pieces.push_back({tensors[at].input, tensors[at].output, tensors[at].elements()});
      }
    }
    std::unique_ptr<FusedView> view;
    if (only_my_rows) view = PartsByRows(fabric, first, &tensors[0] + at - first, wire, scalings);
    if (view == nullptr) {
      view = std::make_unique<FusedView>(dtype, wire, pieces, scalings.before, scalings.after, fabric.compute);
    }
    job->views.push_back(std::move(view));
  }
  job->op = scalings.op;
  job->places_vary = places_vary;
  return job;
}

TaskPtr BeginReduce(const Fabric& fabric, const ReduceJob& job, uint32_t operation) {
  std::vector<TaskFactory> stages;
  for (size_t i = 0; i < job.views.size(); ++i) {
    const auto& view = job.views[i];
    if (job.op == ReduceOp::kAdasum) {
      stages.push_back([&fabric, &view = *view, operation] { return AdasumAllreduce(fabric, operation, view); });
      continue;
    }
    const FusedCall call = {operation, view.get(), job.op};
    const AllreduceAlgorithm& rail = job.quantised[i]
                                         ? QuantisedExchange()
                                         : RailAlgorithmFor(fabric, view->elements(), view->wire(), job.places_vary);
    stages.push_back([&fabric, &rail, call] { return HierarchicalAllreduce(fabric, rail, call); });
  }
  return Sequence(std::move(stages));
}

}  // namespace smddp
