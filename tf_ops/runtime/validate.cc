// The checks behind a verdict. The first words of each message are Horovod's: scripts and tests look for them.
#include <algorithm>

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
Status Possible(const Announcement& request) {
  const std::string where = " for '" + request.name + "'";
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

Status RootExists(const std::map<int, Announcement>& by_rank, int root) {
  if (by_rank.count(root) != 0) return Status::Ok();
  const int size = static_cast<int>(by_rank.size());
  const bool everybody = by_rank.rbegin()->first == size - 1;
  std::string ranks;
  for (const auto& [rank, request] : by_rank) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return Status(Code::kInvalidArgument,
                "`root_rank` must be " +
                    (everybody ? "from 0 to " + std::to_string(size - 1) : "a rank of the process set, " + ranks) +
                    ". Received: " + std::to_string(root) + " for '" + by_rank.begin()->second.name + "'.");
}

}  // namespace

Status Validate(const std::map<int, Announcement>& by_rank) {
  const auto& [first_rank, first] = *by_rank.begin();
  for (const auto& [rank, other] : by_rank) {
    if (other.duplicate) return DuplicateName(other, rank);
    const Pair pair = {first, other, first_rank, rank};
    SMDDP_RETURN_IF_ERROR(SameCall(pair));
    SMDDP_RETURN_IF_ERROR(SameTensors(pair));
    SMDDP_RETURN_IF_ERROR(SamePlan(pair));
  }
  if (first.kind == RequestKind::kBroadcast) SMDDP_RETURN_IF_ERROR(RootExists(by_rank, first.root));
  return Possible(first);
}

}  // namespace smddp
