#include "runtime/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "collectives/hierarchical.h"
#include "core/hash.h"
#include "core/shape.h"
#include "core/slice.h"
#include "runtime/control/component.h"
#include "runtime/control/scalings.h"

namespace smddp {
namespace {

// Reductions are checked in pieces of this many elements: a change of one element must be larger than the rounding
// error of a piece.
constexpr int64_t kPieceElements = 8192;

uint64_t SumOfIntegers(const std::byte* data, size_t bytes, int64_t elements) {
  uint64_t sum = 0;
  const auto add = [&](auto value) {
    for (int64_t i = 0; i < elements; ++i) {
      std::memcpy(&value, data + i * sizeof(value), sizeof(value));
      sum += value;
    }
  };
  bytes == 1 ? add(uint8_t()) : bytes == 2 ? add(uint16_t()) : bytes == 4 ? add(uint32_t()) : add(uint64_t());
  return sum;
}

// In parallel accumulators, because the compiler must keep the order of each sum.
void SumReals(const std::byte* data, DType dtype, int64_t elements, const Compute& compute, Reading* reading) {
  constexpr int64_t kLanes = 8, kBlock = 512;
  double sums[kLanes] = {}, magnitudes[kLanes] = {}, block[kBlock];
  for (int64_t at = 0; at < elements; at += kBlock) {
    const int64_t count = std::min(kBlock, elements - at);
    compute.Cast(block, DType::kFloat64, data + at * SizeOf(dtype), dtype, count, Scaling());
    std::fill(block + count, block + kBlock, 0.0);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      for (int64_t context = 0; context < kLanes; ++context) {
        sums[context] += block[i + context];
        magnitudes[context] += std::fabs(block[i + context]);
      }
    }
  }
  reading->real = std::accumulate(sums, sums + kLanes, 0.0);
  reading->magnitude = std::accumulate(magnitudes, magnitudes + kLanes, 0.0);
}

// Machine epsilon, the smallest step near 0 (processors may flush subnormal numbers to zero), and the largest number.
struct Precision {
  double epsilon, least, largest;
};

Precision PrecisionOf(DType dtype) {
  if (dtype == DType::kFloat16) return {std::ldexp(1, -10), std::ldexp(1, -24), 65504};
  if (dtype == DType::kBFloat16) return {std::ldexp(1, -7), std::ldexp(1, -126), 3.3e38};
  if (dtype == DType::kFloat32) return {std::ldexp(1, -23), std::ldexp(1, -126), 3.4e38};
  return {std::ldexp(1, -52), std::ldexp(1, -1022), 1.79e308};
}

// Can `output` be the sum over `elements` elements of the result, if the inputs of all `ranks` sum to `total`?
bool MayBeSum(const Reading& total, double output, int64_t elements, int ranks, const Scalings& scalings, DType wire) {
  // An infinity or NaN in the inputs must be in the result. Sums of float64 may overflow in the check only.
  if (!std::isfinite(total.real + total.magnitude)) return wire == DType::kFloat64 || !std::isfinite(output);
  const Precision precision = PrecisionOf(wire);
  const double after = scalings.after.factor / static_cast<double>(scalings.after.divisor);
  const double before = scalings.before.factor, both = before * after;
  if (!std::isfinite(output)) {  // an element may have overflowed
    return total.magnitude * std::max({1.0, std::fabs(before), std::fabs(both)}) > precision.largest / 2;
  }
  // Each addition, conversion and scaling of an element may have an error of an epsilon of its inputs, or of a
  // smallest step.
  const double count = static_cast<double>(elements);
  const double relative = (ranks + 10) * precision.epsilon + (count + ranks) * std::numeric_limits<double>::epsilon();
  const double absolute = count * (ranks + 1) * precision.least * std::max(1.0, std::fabs(after));
  return std::fabs(output - total.real * both) <= total.magnitude * std::fabs(both) * relative + absolute;
}

class VerifiedTask : public Task {
 public:
  VerifiedTask(const Fabric& fabric, uint32_t operation, VerifiedCall call)
      : fabric_(fabric), operation_(operation), verification_(fabric, std::move(call)) {}

  Status Begin(const Verifier::MakeTask& make_task) {
    verification_.ReadInputs();
    SMDDP_ASSIGN_OR_RETURN(running_, make_task(&verification_.call()));
    return Status::Ok();
  }
  Result<Progress> Step() override {
    if (running_ != nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, running_->Step());
      if (progress != Progress::kDone) return progress;
      running_.reset();
    }
    if (exchanges_) {
      SMDDP_RETURN_IF_ERROR(verification_.Compare(records_));
      return Progress::kDone;
    }
    verification_.ReadOutputs();
    BeginExchange();
    return Progress::kMoved;
  }
  std::string Describe() const override {
    const std::string what = running_ != nullptr ? running_->Describe() : "between two steps";
    return exchanges_ ? "SMDDP_VERIFY, " + what : what;
  }

 private:
  // The operation's own transfers are over, so its tag can be reused: transfers of one pair and tag are matched in
  // order.
  void BeginExchange() {
    exchanges_ = true;
    const std::vector<Reading>& mine = verification_.record();
    records_.resize(mine.size() * fabric_.topology.size());
    std::copy(mine.begin(), mine.end(), records_.begin() + mine.size() * fabric_.topology.rank());
    std::vector<std::vector<BufferView>> blocks;
    for (int rank = 0; rank < fabric_.topology.size(); ++rank) {
      blocks.push_back({{&records_[mine.size() * rank], mine.size() * sizeof(Reading)}});
    }
    running_ = HierarchicalAllgather(fabric_, operation_, blocks);
  }

  const Fabric& fabric_;
  const uint32_t operation_;
  Verification verification_;
  std::vector<Reading> records_;  // of all ranks
  bool exchanges_ = false;        // records are being exchanged
  TaskPtr running_;               // null: nothing to wait for
};

}  // namespace

void VerifiedCall::SetResult(int tensor, void* result, const std::vector<int64_t>& rows) {
  tensors[tensor].output = result;
  received.resize(tensors.size());
  received[tensor] = rows;
}

// --- Reading ---

// The rows of each consecutive block that is compared separately.
std::vector<int64_t> Verification::BlocksOf(const TensorRef& tensor) const {
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  if (!scatters()) return {rows};
  std::vector<int64_t> blocks;
  for (int owner = 0; owner < size(); ++owner) blocks.push_back(RowsOf(rows, size(), owner).size());
  return blocks;
}

// `only`: the one block that `memory` holds. Null: it holds none.
void Verification::ReadBlocks(int tensor, const void* memory, const std::vector<int64_t>& rows, int only) {
  const TensorRef& ref = call_.tensors[tensor];
  const int64_t element_bytes = SizeOf(ref.dtype), in_row = ref.row_bytes() / element_bytes;
  const bool only_sums = reduces() && inputs_ == 0;  // the inputs of a reduction
  const auto* at = static_cast<const std::byte*>(memory);
  for (int block = 0; block < static_cast<int>(rows.size()); ++block) {
    const int64_t end = rows[block] * in_row;
    const int64_t step = reduces() ? kPieceElements : std::max<int64_t>(end, 1);
    for (int64_t begin = 0; begin == 0 || begin < end; begin += step) {
      const int64_t elements = std::min(step, end - begin);
      Reading& reading = record_.emplace_back();
      pieces_.push_back({tensor, block, elements});
      if (elements == 0 || memory == nullptr || (only >= 0 && only != block)) continue;
      if (reduces() && IsFloating(ref.dtype)) SumReals(at, ref.dtype, elements, fabric_.compute, &reading);
      if (reduces() && !IsFloating(ref.dtype)) reading.integer = SumOfIntegers(at, element_bytes, elements);
      // NaNs are equal: their bits may differ between ranks (those of a + b and b + a do).
      if (!only_sums && !std::isnan(reading.real)) reading.checksum = ChecksumOf(at, elements * element_bytes);
      at += elements * element_bytes;
    }
  }
}

void Verification::ReadInputs() {
  const bool sends = call_.kind == RequestKind::kAlltoall;
  if (sends && call_.splits.empty()) call_.splits.assign(size(), call_.tensors[0].shape[0] / size());
  const bool used = reduces() ? ScalingsFor(call_, 1).op == ReduceOp::kSum
                              : call_.kind != RequestKind::kBroadcast || rank() == call_.root;
  for (size_t i = 0; i < call_.tensors.size(); ++i) {
    const TensorRef& tensor = call_.tensors[i];
    ReadBlocks(i, used ? tensor.input : nullptr, sends ? call_.splits : BlocksOf(tensor));
  }
  inputs_ = record_.size();
}

void Verification::ReadOutputs() {
  for (size_t i = 0; i < call_.tensors.size(); ++i) {
    const TensorRef& tensor = call_.tensors[i];
    const bool gathers = !call_.received.empty();
    ReadBlocks(i, tensor.output, gathers ? call_.received[i] : BlocksOf(tensor), scatters() ? rank() : -1);
  }
}

// --- Comparing ---

Status Verification::Compare(const std::vector<Reading>& records) const {
  const auto checksum = [&](int rank, size_t at) { return records[rank * record_.size() + at].checksum; };
  for (size_t output = inputs_; output < record_.size(); ++output) {
    const Piece& piece = pieces_[output];
    if (scatters()) {
      if (IsSum(records, output, piece.block)) continue;
      return Failure(piece, {piece.block}, "is not the sum of the inputs");
    }
    // The ranks whose result differs from that of `source`, or from the input of `source`.
    const auto differing = [&](int source) {
      std::vector<int> ranks;
      for (int rank = 0; rank < size(); ++rank) {
        const size_t input = call_.kind == RequestKind::kAlltoall ? rank : piece.tensor;
        if (checksum(rank, output) != checksum(source, reduces() ? output : input)) ranks.push_back(rank);
      }
      return ranks;
    };
    int source = call_.kind == RequestKind::kBroadcast ? call_.root : piece.block;
    if (differing(source).empty()) {
      if (!reduces() || IsSum(records, output, source)) continue;
      return Failure(piece, {}, "is not the sum of the inputs");
    }
    if (!reduces()) return Failure(piece, differing(source), "differs from the input of " + NameOfRanks({source}));
    // The result of most ranks counts as correct; of two equally frequent results, the one that is the sum.
    const auto wrong = [&](int rank) { return 2 * differing(rank).size() + (IsSum(records, output, rank) ? 0 : 1); };
    for (int rank = 1; rank < size(); ++rank) source = wrong(rank) < wrong(source) ? rank : source;
    return Failure(piece, differing(source), "is not the result of " + NameOfRanks({source}));
  }
  return Status::Ok();
}

// True where this cannot be checked: Product, Min, Max and Adasum are not sums; scaled and divided integers are
// truncated; 8-bit blocks have errors as large as small elements.
bool Verification::IsSum(const std::vector<Reading>& records, size_t output, int rank) const {
  const DType dtype = call_.tensors[pieces_[output].tensor].dtype;
  const bool scaled = call_.prescale != 1.0 || call_.postscale != 1.0;
  const Scalings scalings = ScalingsFor(call_, size());
  if (scalings.op != ReduceOp::kSum || dtype == DType::kBool) return true;
  Reading total;
  for (int other = 0; other < size(); ++other) {
    const Reading& input = records[other * record_.size() + output - inputs_];
    total.integer += input.integer;
    total.real += input.real;
    total.magnitude += input.magnitude;
  }
  const Reading& result = records[rank * record_.size() + output];
  if (IsFloating(dtype)) {
    if (call_.wire_dtype == DType::kInt8) return true;
    return MayBeSum(total, result.real, pieces_[output].elements, size(), scalings, Narrowed(dtype, call_.wire_dtype));
  }
  // Each element holds its sum modulo 2^bits.
  return scaled || scalings.after.divisor != 1 || (total.integer - result.integer) << (64 - 8 * SizeOf(dtype)) == 0;
}

// --- Words ---

// "rank 2", "ranks 0, 2": with the numbers that users know.
std::string Verification::NameOfRanks(const std::vector<int>& ranks) const {
  return (ranks.size() == 1 ? "rank " : "ranks ") + NumbersOf(fabric_.topology, ranks);
}

// Empty `ranks`: all of them.
Status Verification::Failure(const Piece& piece, const std::vector<int>& ranks, const std::string& what) const {
  const TensorRef& tensor = call_.tensors[piece.tensor];
  const std::string name = call_.tensor_names.empty() ? "" : call_.tensor_names[piece.tensor];
  std::string where = call_.received.empty() ? "" : "the block of " + NameOfRanks({piece.block}) + " in ";
  where += Concat("tensor ", piece.tensor, name.empty() ? "" : ", '" + name + "'", " (", NameOf(tensor.dtype), " ",
                  ShapeText(tensor.shape), ") on ", ranks.empty() ? "every rank" : NameOfRanks(ranks));
  return Status(
      Reason::kDataLoss, "SMDDP_VERIFY: ", call_.name, " gave a wrong result: ", where, " ", what, " (of ", size(),
      " ranks). Memory, a processor or a link changed it, or smddp_tf has a bug. The result was not returned, and all "
      "earlier results were checked. Restart from the last checkpoint, without any host that is named repeatedly.");
}

// --- The task ---

Result<TaskPtr> Verifier::Begin(std::optional<VerifiedCall> call, uint32_t operation, const MakeTask& make_task) const {
  if (!call) return make_task(nullptr);
  auto task = std::make_unique<VerifiedTask>(fabric_, operation, std::move(*call));
  SMDDP_RETURN_IF_ERROR(task->Begin(make_task));
  return TaskPtr(std::move(task));
}

}  // namespace smddp
