// The checks behind a verdict. The first words of each message are Horovod's: scripts and tests look for them.
#include <algorithm>
#include <cctype>

#include "core/shape.h"
#include "runtime/coordinator.h"

namespace smddp {
namespace {

// A request of one rank beside that of another.
struct Pair {
  const Announcement& first;
  const Announcement& other;
  int first_rank;
  int other_rank;

  Status Mismatch(const std::string& what, const std::string& first_value, const std::string& other_value) const {
    return Status(Code::kFailedPrecondition, "Mismatched " + what + ": rank " + std::to_string(first_rank) + " has " +
                                                 first_value + ", rank " + std::to_string(other_rank) + " has " +
                                                 other_value + ", for '" + first.name +
                                                 "'. Every rank must make the same call with the same arguments.");
  }
};

Status SameCall(const Pair& pair) {
  if (pair.first.kind != pair.other.kind) {
    return pair.Mismatch("operations", NameOf(pair.first.kind), NameOf(pair.other.kind));
  }
  if (pair.first.dtypes.size() != pair.other.dtypes.size()) {
    return pair.Mismatch("number of tensors", std::to_string(pair.first.dtypes.size()),
                         std::to_string(pair.other.dtypes.size()));
  }
  if (pair.first.op != pair.other.op) {
    return pair.Mismatch("reduction operation", NameOf(pair.first.op), NameOf(pair.other.op));
  }
  if (pair.first.prescale != pair.other.prescale || pair.first.postscale != pair.other.postscale) {
    const auto text = [](const Announcement& a) {
      return std::to_string(a.prescale) + " and " + std::to_string(a.postscale);
    };
    return pair.Mismatch("prescale and/or postscale factors", text(pair.first), text(pair.other));
  }
  if (pair.first.wire_dtype != pair.other.wire_dtype) {
    return pair.Mismatch("wire dtype (compression)", NameOf(pair.first.wire_dtype), NameOf(pair.other.wire_dtype));
  }
  if (pair.first.root != pair.other.root) {
    return pair.Mismatch("BROADCAST root ranks", std::to_string(pair.first.root), std::to_string(pair.other.root));
  }
  return Status::Ok();
}

Status SameTensors(const Pair& pair) {
  const bool ragged = pair.first.kind == RequestKind::kAllgather;
  for (size_t i = 0; i < pair.first.dtypes.size(); ++i) {
    if (pair.first.dtypes[i] != pair.other.dtypes[i]) {
      return pair.Mismatch("data types", NameOf(pair.first.dtypes[i]), NameOf(pair.other.dtypes[i]));
    }
    const auto& a = pair.first.shapes[i];
    const auto& b = pair.other.shapes[i];
    const bool same =
        ragged && !a.empty() ? a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1) : a == b;
    if (!same) {
      return pair.Mismatch(std::string(CapitalNameOf(pair.first.kind)) + " tensor shapes", ShapeText(a), ShapeText(b));
    }
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

// What every rank asks for alike and yet cannot be done.
Status Possible(const Announcement& request, int size) {
  const std::string where = " for '" + request.name + "'";
  if (request.kind == RequestKind::kBroadcast && (request.root < 0 || request.root >= size)) {
    return Status(Code::kInvalidArgument, "`root_rank` must be from 0 to " + std::to_string(size - 1) +
                                              ". Received: " + std::to_string(request.root) + where + ".");
  }
  if (request.kind == RequestKind::kAllgather && request.shapes[0].empty()) {
    return Status(Code::kInvalidArgument, "allgather needs a tensor with at least one dimension. Received a scalar" +
                                              where + ". Use tf.expand_dims(tensor, 0).");
  }
  if (request.kind != RequestKind::kAllreduce) return Status::Ok();
  for (DType dtype : request.dtypes) {
    if (!IsReducible(dtype) || (dtype == DType::kBool && request.op == ReduceOp::kAverage)) {
      return Status(Code::kInvalidArgument, std::string("allreduce with op=") + NameOf(request.op) +
                                                " is not defined for " + NameOf(dtype) + where +
                                                ". Cast the tensor first.");
    }
  }
  return Status::Ok();
}

// In Horovod's words. An error on every rank, also where the first of the two was through already.
Status DuplicateName(const Announcement& announcement, int rank) {
  return Status(Code::kInvalidArgument,
                std::string("Requested to ") + NameOf(announcement.kind) +
                    " a tensor with the same name as another tensor that is currently being processed: '" +
                    announcement.name + "' on rank " + std::to_string(rank) + ". Give each its own `name`.");
}

}  // namespace

Status Validate(const std::map<int, Announcement>& by_rank, int size) {
  const auto& [first_rank, first] = *by_rank.begin();
  for (const auto& [rank, other] : by_rank) {
    if (other.duplicate) return DuplicateName(other, rank);
    const Pair pair = {first, other, first_rank, rank};
    SMDDP_RETURN_IF_ERROR(SamePlan(pair));  // first: its words say more of a plan
    SMDDP_RETURN_IF_ERROR(SameCall(pair));
    SMDDP_RETURN_IF_ERROR(SameTensors(pair));
  }
  return Possible(first, size);
}

// The first words are Horovod's.
Status PossibleWithJoined(const Announcement& request, const std::vector<int>& joined) {
  const bool neutral = request.op != ReduceOp::kMin && request.op != ReduceOp::kMax && request.op != ReduceOp::kProduct;
  if (request.kind == RequestKind::kPlan || (request.kind == RequestKind::kAllreduce && neutral)) return Status::Ok();
  std::string what = NameOf(request.kind);
  what[0] = static_cast<char>(std::toupper(what[0]));
  if (request.kind == RequestKind::kAllreduce) what += std::string(" with op=") + NameOf(request.op);
  std::string ranks;
  for (const int rank : joined) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  std::string advice = " Call it before hvd.join or after it.";
  if (request.kind == RequestKind::kAllgather) {
    advice += " Gradients that are tf.IndexedSlices are gathered; sparse_as_dense=True makes them dense.";
  }
  return Status(Code::kFailedPrecondition, what + " is not supported with Join at this time: rank " + ranks +
                                               " called hvd.join and has nothing to bring to '" + request.name +
                                               "'. Average and Sum are, where zeros do no harm." + advice);
}

}  // namespace smddp
