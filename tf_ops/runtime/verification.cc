#include "runtime/verification.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/shard.h"

namespace smddp {
namespace {

// A part is large enough for its sum to be small beside it, and small enough for rounding not to hide much.
constexpr int64_t kLeastPart = 4096;
constexpr int64_t kMostParts = 1024;  // of one tensor

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double ValueOf(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::byte* Bytes(const void* memory) { return static_cast<std::byte*>(const_cast<void*>(memory)); }

}  // namespace

Verification::Verification(const Fabric& fabric, VerifiedCall call) : fabric_(fabric), call_(std::move(call)) {
  AddCells();
  AddParts();
}

// --- What there is to look at ---

void Verification::AddCells() {
  const int tensors = static_cast<int>(call_.tensors.size());
  switch (call_.kind) {
    case RequestKind::kAllreduce:
      for (const TensorRef& tensor : call_.tensors) cells_.push_back({{Bytes(tensor.output), tensor.bytes()}});
      break;
    case RequestKind::kBroadcast:
      input_cells_ = tensors;
      for (const TensorRef& tensor : call_.tensors) {
        cells_.push_back(rank() == call_.root ? Sampled{{Bytes(tensor.input), tensor.bytes()}} : Sampled());
      }
      for (const TensorRef& tensor : call_.tensors) cells_.push_back({{Bytes(tensor.output), tensor.bytes()}});
      break;
    case RequestKind::kAllgather:
      input_cells_ = tensors;
      for (const TensorRef& tensor : call_.tensors) cells_.push_back({{Bytes(tensor.input), tensor.bytes()}});
      cells_.resize(cells_.size() + static_cast<size_t>(tensors) * size());
      break;
    case RequestKind::kAlltoall: {
      input_cells_ = size();
      std::byte* at = Bytes(call_.tensors[0].input);
      std::vector<int64_t> splits = call_.splits;
      if (splits.empty()) splits.assign(size(), call_.tensors[0].shape[0] / size());
      for (const int64_t rows : splits) {
        cells_.push_back({{at, static_cast<size_t>(rows) * call_.tensors[0].row_bytes()}});
        at += cells_.back().memory.bytes;
      }
      cells_.resize(2 * static_cast<size_t>(size()));
      break;
    }
    default:
      break;
  }
}

void Verification::SetResult(int tensor, void* result, const std::vector<int64_t>& rows) {
  size_t cell = static_cast<size_t>(input_cells_) + static_cast<size_t>(tensor) * size();
  std::byte* at = static_cast<std::byte*>(result);
  for (const int64_t count : rows) {
    cells_[cell].memory = {at, static_cast<size_t>(count) * call_.tensors[tensor].row_bytes()};
    at += cells_[cell++].memory.bytes;
  }
}

SumRule Verification::RuleOf(int tensor) const {
  const DType dtype = call_.tensors[tensor].dtype;
  const DType wire = Narrowed(dtype, call_.wire_dtype);
  return SumRuleFor(dtype, wire, call_.op, call_.prescale, call_.postscale, size());
}

void Verification::AddParts() {
  if (!reduces()) return;
  for (size_t i = 0; i < call_.tensors.size(); ++i) {
    const int tensor = static_cast<int>(i);
    if (RuleOf(tensor).fold == Fold::kNone) continue;
    const TensorRef& ref = call_.tensors[i];
    if (call_.kind == RequestKind::kAllreduce) {
      CutIntoParts(tensor, {0, ref.elements()}, /*owner=*/0);
      continue;
    }
    const int64_t rows = ref.shape.empty() ? 0 : ref.shape[0];
    const int64_t in_row = rows == 0 ? 0 : ref.elements() / rows;
    for (int owner = 0; owner < size(); ++owner) {
      const Range mine = RowsOf(rows, size(), owner);
      CutIntoParts(tensor, {mine.begin * in_row, mine.end * in_row}, owner);
    }
  }
}

void Verification::CutIntoParts(int tensor, Range elements, int owner) {
  const int64_t each = std::max(kLeastPart, (elements.size() + kMostParts - 1) / kMostParts);
  for (int64_t at = elements.begin; at < elements.end; at += each) {
    Part& part = parts_.emplace_back();
    part.tensor = tensor;
    part.elements = {at, std::min(elements.end, at + each)};
    part.owner = owner;
  }
}

// --- Looking ---

void Verification::Sample(Sampled* cell, int tensor) const {
  cell->checksum = ChecksumOf(cell->memory, call_.tensors[tensor].dtype, reduces());
}

int Verification::TensorOfCell(int cell) const {
  if (call_.kind == RequestKind::kAlltoall) return 0;
  if (call_.kind == RequestKind::kAllgather && cell >= input_cells_) return (cell - input_cells_) / size();
  return cell % static_cast<int>(call_.tensors.size());
}

void Verification::SampleInputs() {
  for (int cell = 0; cell < input_cells_; ++cell) Sample(&cells_[cell], TensorOfCell(cell));
  for (Part& part : parts_) {
    const TensorRef& tensor = call_.tensors[part.tensor];
    const std::byte* at = Bytes(tensor.input) + static_cast<size_t>(part.elements.begin) * SizeOf(tensor.dtype);
    part.input = SumPart(at, tensor.dtype, part.elements.size(), RuleOf(part.tensor).fold, fabric_.compute);
  }
}

// Null where it is another rank's.
std::byte* Verification::OutputOf(const Part& part) const {
  const TensorRef& tensor = call_.tensors[part.tensor];
  int64_t first = part.elements.begin;
  if (call_.kind == RequestKind::kReducescatter) {
    if (part.owner != rank()) return nullptr;
    const int64_t rows = tensor.shape[0];
    first -= RowsOf(rows, size(), rank()).begin * (tensor.elements() / rows);
  }
  return Bytes(tensor.output) + static_cast<size_t>(first) * SizeOf(tensor.dtype);
}

void Verification::SampleOutputs() {
  for (size_t cell = input_cells_; cell < cells_.size(); ++cell) {
    Sample(&cells_[cell], TensorOfCell(static_cast<int>(cell)));
  }
  for (Part& part : parts_) {
    const std::byte* at = OutputOf(part);
    if (at == nullptr) continue;
    part.output =
        SumPart(at, call_.tensors[part.tensor].dtype, part.elements.size(), RuleOf(part.tensor).fold, fabric_.compute);
  }
}

std::vector<Cell> Verification::AllMemory(bool outputs) const {
  std::vector<Cell> all;
  if (!reduces()) {
    const size_t begin = outputs ? input_cells_ : 0, end = outputs ? cells_.size() : input_cells_;
    for (size_t cell = begin; cell < end; ++cell) all.push_back(cells_[cell].memory);
    return all;
  }
  for (const TensorRef& tensor : call_.tensors) {
    const bool my_rows = outputs && call_.kind == RequestKind::kReducescatter;
    const size_t bytes = my_rows ? RowsOf(tensor.shape[0], size(), rank()).size() * tensor.row_bytes() : tensor.bytes();
    all.push_back({Bytes(outputs ? tensor.output : tensor.input), bytes});
  }
  return all;
}

bool Verification::Flip(const FlippedBit& bit) {
  int64_t byte = bit.bit / 8;
  for (const Cell& memory : AllMemory(bit.of == FlippedBit::Of::kOutput)) {
    if (byte < static_cast<int64_t>(memory.bytes)) {
      memory.data[byte] ^= static_cast<std::byte>(1 << (bit.bit % 8));
      return true;
    }
    byte -= static_cast<int64_t>(memory.bytes);
  }
  return false;
}

uint64_t Verification::ChecksumOfRange(int cell, uint64_t begin, uint64_t end) const {
  const DType dtype = call_.tensors[TensorOfCell(cell)].dtype;
  const Cell& whole = cells_[cell].memory;
  return ChecksumOf({whole.data + begin * SizeOf(dtype), (end - begin) * SizeOf(dtype)}, dtype, reduces());
}

// --- Records ---

void Verification::WriteRecord(uint64_t* record) const {
  for (const Sampled& cell : cells_) {
    *record++ = cell.memory.bytes;
    *record++ = cell.checksum;
  }
  for (const Part& part : parts_) {
    *record++ = BitsOf(part.input.value);
    *record++ = BitsOf(part.input.magnitude);
    *record++ = part.input.exact;
    *record++ = BitsOf(part.output.value);
    *record++ = part.output.exact;
  }
}

uint64_t Verification::BytesOf(const std::vector<uint64_t>& records, int rank, int cell) const {
  return records[rank * record_words() + 2 * cell];
}

bool Verification::Same(const std::vector<uint64_t>& records, int rank, int cell, int other_rank,
                        int other_cell) const {
  const uint64_t* first = &records[rank * record_words() + 2 * cell];
  const uint64_t* other = &records[other_rank * record_words() + 2 * other_cell];
  return first[0] == other[0] && first[1] == other[1];
}

PartSum Verification::SumOf(const std::vector<uint64_t>& records, int rank, size_t part, bool output) const {
  const uint64_t* at = &records[rank * record_words() + 2 * cells_.size() + kWordsPerPart * part];
  if (output) return {ValueOf(at[3]), 0, at[4]};
  return {ValueOf(at[0]), ValueOf(at[1]), at[2]};
}

}  // namespace smddp
