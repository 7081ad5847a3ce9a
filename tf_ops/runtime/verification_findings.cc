// What the records of all ranks say, and how to say it.
#include <cmath>
#include <cstdio>
#include <map>

#include "core/shape.h"
#include "runtime/verification.h"

namespace smddp {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

}  // namespace

void Verification::Compare(const std::vector<uint64_t>& records, int tensor, int rank, int cell, int other_rank,
                           int other_cell, std::optional<Difference>* found) const {
  if (Same(records, rank, cell, other_rank, other_cell)) return;
  if (!found->has_value()) {
    *found = Difference{tensor,
                        rank,
                        cell,
                        other_rank,
                        other_cell,
                        BytesOf(records, rank, cell),
                        BytesOf(records, other_rank, other_cell),
                        {}};
  }
  const Difference& first = **found;
  if (first.first_rank == rank && first.first_cell == cell) (*found)->others.push_back(other_rank);
}

// The lowest of the ranks whose cell most ranks have.
int Verification::MostCommon(const std::vector<uint64_t>& records, int cell) const {
  std::map<uint64_t, int> count;
  for (int rank = 0; rank < size(); ++rank) ++count[records[rank * record_words() + 2 * cell + 1]];
  int most = 0;
  const auto common = [&](int rank) { return count[records[rank * record_words() + 2 * cell + 1]]; };
  for (int rank = 1; rank < size(); ++rank) {
    if (common(rank) > common(most)) most = rank;
  }
  return most;
}

std::optional<Difference> Verification::FindDifference(const std::vector<uint64_t>& records) const {
  std::optional<Difference> found;
  const int tensors = static_cast<int>(call_.tensors.size());
  for (int tensor = 0; tensor < tensors; ++tensor) {
    if (call_.kind == RequestKind::kAllreduce) {
      const int right = MostCommon(records, tensor);
      for (int rank = 0; rank < size(); ++rank) Compare(records, tensor, right, tensor, rank, tensor, &found);
    } else if (call_.kind == RequestKind::kBroadcast) {
      for (int rank = 0; rank < size(); ++rank) {
        Compare(records, tensor, call_.root, tensor, rank, tensors + tensor, &found);
      }
    } else if (call_.kind == RequestKind::kAllgather) {
      for (int from = 0; from < size(); ++from) {
        const int block = input_cells_ + tensor * size() + from;
        for (int rank = 0; rank < size(); ++rank) Compare(records, tensor, from, tensor, rank, block, &found);
      }
    } else if (call_.kind == RequestKind::kAlltoall) {
      for (int from = 0; from < size(); ++from) {
        for (int to = 0; to < size(); ++to) Compare(records, 0, from, to, to, input_cells_ + from, &found);
      }
    }
  }
  return found;
}

std::string Verification::FindWrongSum(const std::vector<uint64_t>& records) const {
  std::vector<PartSum> inputs(size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    for (int rank = 0; rank < size(); ++rank) inputs[rank] = SumOf(records, rank, i, /*output=*/false);
    const PartSum output = SumOf(records, part.owner, i, /*output=*/true);
    const SumVerdict verdict = CompareSums(RuleOf(part.tensor), inputs, output, part.elements.size());
    if (!verdict.right) return DescribeWrongSum(part, verdict, output.value);
  }
  return "";
}

// --- Words ---

std::string Verification::DescribeTensor(int tensor) const {
  const TensorRef& ref = call_.tensors[tensor];
  const std::string name = call_.tensor_names.empty() ? "" : call_.tensor_names[tensor];
  return "tensor " + std::to_string(tensor) + (name.empty() ? "" : ", '" + name + "',") + " (" + NameOf(ref.dtype) +
         " " + ShapeText(ref.shape) + ")";
}

std::string Verification::DescribeCell(int rank, int cell) const {
  const std::string who = std::to_string(KnownAs(rank));
  return cell < input_cells_ ? "what rank " + who + " brought" : "the result of rank " + who;
}

std::string Verification::DescribeBlock(const Difference& difference) const {
  const bool blocks = call_.kind == RequestKind::kAllgather || call_.kind == RequestKind::kAlltoall;
  return blocks ? "the block of rank " + std::to_string(KnownAs(difference.first_rank)) + " in " : "";
}

std::string Verification::DescribeWrongSum(const Part& part, const SumVerdict& verdict, double came) const {
  const Fold fold = RuleOf(part.tensor).fold;
  const std::string what = fold == Fold::kSum ? "the sum" : fold == Fold::kMin ? "the least" : "the largest";
  const std::string of = call_.kind == RequestKind::kReducescatter
                             ? "in the result of rank " + std::to_string(KnownAs(part.owner))
                             : "on every rank";
  return what + " of elements " + std::to_string(part.elements.begin) + " to " + std::to_string(part.elements.end - 1) +
         " of " + DescribeTensor(part.tensor) + " is " + Number(came) + " " + of +
         ", but what the ranks brought gives " + Number(verdict.expected) + " (rounding explains " +
         Number(verdict.tolerance) + ")";
}

}  // namespace smddp
