// The checks behind a verdict. Each message begins with Horovod's text: scripts and tests look for it.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/shape.h"
#include "runtime/named/coordinator.h"

namespace smddp {
namespace {

// A request of one rank beside that of another.
struct Pair {
  const Announcement& first;
  const Announcement& other;
  int first_rank;
  int other_rank;

  Status Mismatch(std::string_view what, std::string_view first_value, std::string_view other_value,
                  Reason reason = Reason::kDisagreement) const {
    return Status(reason, "Mismatched ", what, ": rank ", first_rank, " has ", first_value, ", rank ", other_rank,
                  " has ", other_value, ", for '", first.name,
                  "'. Every rank must make the same call with the same arguments.");
  }
  // The same where the values differ.
  Status Same(std::string_view what, std::string_view first_value, std::string_view other_value,
              Reason reason = Reason::kDisagreement) const {
    return first_value == other_value ? Status::Ok() : Mismatch(what, first_value, other_value, reason);
  }
};

Status SameCall(const Pair& pair) {
  const Announcement &a = pair.first, &b = pair.other;
  SMDDP_RETURN_IF_ERROR(pair.Same("operations", NameOf(a.kind), NameOf(b.kind)));
  SMDDP_RETURN_IF_ERROR(
      pair.Same("number of tensors", Concat(a.tensors.size()), Concat(b.tensors.size()), Reason::kTensorsDiffer));
  SMDDP_RETURN_IF_ERROR(pair.Same("reduction operation", NameOf(a.op), NameOf(b.op)));
  if (a.prescale != b.prescale || a.postscale != b.postscale) {
    const auto text = [](const Announcement& of) { return Concat(of.prescale, " and ", of.postscale); };
    return pair.Mismatch("prescale and/or postscale factors", text(a), text(b));
  }
  SMDDP_RETURN_IF_ERROR(pair.Same("wire dtype (compression)", NameOf(a.wire_dtype), NameOf(b.wire_dtype)));
  return pair.Same("BROADCAST root ranks", Concat(a.root), Concat(b.root));
}

Status SameTensors(const Pair& pair) {
  const RequestKind kind = pair.first.kind;
  const bool ragged = kind == RequestKind::kAllgather || kind == RequestKind::kAlltoall;
  for (size_t i = 0; i < pair.first.tensors.size(); ++i) {
    const auto& [mine, a] = pair.first.tensors[i];
    const auto& [its, b] = pair.other.tensors[i];
    if (mine != its) return pair.Mismatch("data types", NameOf(mine), NameOf(its), Reason::kTensorsDiffer);
    const bool same =
        ragged && !a.empty() ? a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1) : a == b;
    if (same) continue;
    return pair.Mismatch(Concat(CapitalNameOf(kind), " tensor shapes"), ShapeText(a), ShapeText(b),
                         Reason::kTensorsDiffer);
  }
  return Status::Ok();
}

Status SamePlan(const Pair& pair) {
  const auto& a = pair.first.facts;
  const auto& b = pair.other.facts;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string left = i < a.size() ? a[i] : "nothing more";
    const std::string right = i < b.size() ? b[i] : "nothing more";
    if (left != right) {
      return pair.Mismatch("gradient plans", "'" + left + "'", "'" + right + "'");
    }
  }
  return Status::Ok();
}

Status Impossible(const Announcement& request, const std::string& expected, const std::string& received) {
  return Status(Reason::kBadArgument, expected, ". Received: ", received, ", for ", NameOf(request.kind), " '",
                request.name, "'.");
}

bool CutsAlongRows(RequestKind kind) {
  return kind == RequestKind::kAllgather || kind == RequestKind::kAlltoall || kind == RequestKind::kReducescatter;
}

// Checks the numbers of rows that `rank` sends to each rank.
Status CheckSplits(const Announcement& request, int rank, int size) {
  const int64_t rows = request.tensors[0].shape[0];
  const std::string of_rank = " on rank " + std::to_string(rank);
  if (request.even_split) {
    if (rows % size == 0) return Status::Ok();
    return Impossible(
        request,
        "Without `splits`, the first dimension of the tensor must be a multiple of the number of ranks, " +
            std::to_string(size),
        std::to_string(rows) + " rows" + of_rank);
  }
  if (static_cast<int>(request.splits.size()) != size) {
    return Impossible(request, "`splits` must have one entry for each of the " + std::to_string(size) + " ranks",
                      std::to_string(request.splits.size()) + " entries" + of_rank);
  }
  int64_t sum = 0;
  for (int64_t split : request.splits) {
    // Checked one by one: the sum of large values could overflow.
    if (split < 0 || split > rows - sum) {
      return Impossible(
          request,
          "Every entry of `splits` must be at least 0, and their sum the first dimension of the tensor, " +
              std::to_string(rows) + of_rank,
          "splits=" + ShapeText(request.splits));
    }
    sum += split;
  }
  if (sum == rows) return Status::Ok();
  return Impossible(request, Concat("The sum of `splits` must be the first dimension of the tensor, ", rows, of_rank),
                    "splits=" + ShapeText(request.splits));
}

// Is the reduction defined for that dtype?
bool IsDefined(ReduceOp op, DType dtype) {
  if (op == ReduceOp::kAdasum) return IsFloating(dtype);
  return IsReducible(dtype) && !(dtype == DType::kBool && op == ReduceOp::kAverage);
}

// Checks for requests on which all ranks agree but which are not possible.
Status Possible(const Announcement& request) {
  const std::string where = " for '" + request.name + "'";
  for (const TensorSpec& tensor : request.tensors) {
    if (!tensor.shape.empty() || !CutsAlongRows(request.kind)) continue;
    return Status(Reason::kBadArgument, NameOf(request.kind),
                  " needs a tensor with at least one dimension. Received a scalar", where,
                  ". Use tf.expand_dims(tensor, 0).");
  }
  const bool scatters = request.kind == RequestKind::kReducescatter;
  if (scatters && request.op != ReduceOp::kSum && request.op != ReduceOp::kAverage) {
    return Impossible(request, "`op` must be Average or Sum", NameOf(request.op));
  }
  if (!scatters && request.kind != RequestKind::kAllreduce) return Status::Ok();
  for (const TensorSpec& tensor : request.tensors) {
    if (IsDefined(request.op, tensor.dtype)) continue;
    return Status(Reason::kBadArgument, NameOf(request.kind), " with op=", NameOf(request.op), " is not defined for ",
                  NameOf(tensor.dtype), where, ". Cast the tensor first.");
  }
  return Status::Ok();
}

// Horovod's text. An error on every rank, also where the first of the two requests has completed.
Status DuplicateName(const Announcement& announcement, int rank) {
  return Status(Reason::kBadArgument, "Requested to ", NameOf(announcement.kind),
                " a tensor with the same name as another tensor that is currently being processed: '",
                announcement.name, "' on rank ", rank, ". Give each its own `name`.");
}

Status RootExists(const std::map<int, Announcement>& by_rank, int root) {
  if (by_rank.count(root) != 0) return Status::Ok();
  const int last = static_cast<int>(by_rank.size()) - 1;
  std::string ranks;
  for (const auto& [rank, request] : by_rank) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  const std::string expected = by_rank.rbegin()->first == last
                                   ? "`root_rank` must be from 0 to " + std::to_string(last)
                                   : "`root_rank` must be a rank of the process set, " + ranks;
  return Status(Reason::kBadArgument, expected, ". Received: ", root, " for '", by_rank.begin()->second.name, "'.");
}

}  // namespace

Status Validate(const std::map<int, Announcement>& by_rank) {
  const int size = static_cast<int>(by_rank.size());
  const auto& [first_rank, first] = *by_rank.begin();
  for (const auto& [rank, other] : by_rank) {
    if (other.duplicate) return DuplicateName(other, rank);
    const Pair pair = {first, other, first_rank, rank};
    SMDDP_RETURN_IF_ERROR(SamePlan(pair));  // first: it has a more precise message for plans
    SMDDP_RETURN_IF_ERROR(SameCall(pair));
    SMDDP_RETURN_IF_ERROR(SameTensors(pair));
  }
  if (first.kind == RequestKind::kBroadcast) SMDDP_RETURN_IF_ERROR(RootExists(by_rank, first.root));
  SMDDP_RETURN_IF_ERROR(Possible(first));
  for (const auto& [rank, request] : by_rank) {
    if (request.kind == RequestKind::kAlltoall) SMDDP_RETURN_IF_ERROR(CheckSplits(request, rank, size));
  }
  return Status::Ok();
}

// The message begins with Horovod's text.
Status PossibleWithJoined(const Announcement& request, const std::vector<int>& joined) {
  const bool neutral = request.op != ReduceOp::kMin && request.op != ReduceOp::kMax && request.op != ReduceOp::kProduct;
  if (OutlivesRounds(request.kind) || (request.kind == RequestKind::kAllreduce && neutral)) return Status::Ok();
  std::string what = NameOf(request.kind);
  what[0] = static_cast<char>(std::toupper(what[0]));
  if (request.kind == RequestKind::kAllreduce) what += std::string(" with op=") + NameOf(request.op);
  std::string advice = " Call it before hvd.join or after it.";
  if (request.kind == RequestKind::kAllgather) {
    advice += " Gradients that are tf.IndexedSlices are gathered; sparse_as_dense=True makes them dense.";
  }
  return Status(Reason::kDisagreement, what, " is not supported with Join at this time: rank ", Listed(joined),
                " called hvd.join and has nothing to contribute to '", request.name,
                "'. Average and Sum are supported, because zeros do not change a sum.", advice);
}

}  // namespace smddp
