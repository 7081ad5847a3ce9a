// What one collective promises, on one rank: which bytes must be equal to which of another rank, and which sums must
// fit (runtime/verify_sums.h). Every rank writes its part into a record of the same length; whoever has the records of
// all ranks comes to the same conclusion.
//
//   allreduce       every result is that of the others; the sum of the inputs is that of the result
//   reducescatter   the sum of the inputs for a rank is that of its result
//   broadcast       every result is what the root brought
//   allgather       every block of every result is what its rank brought
//   alltoall        what came from a rank is what it sent
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/fabric.h"
#include "core/env.h"
#include "runtime/announcement.h"
#include "runtime/session.h"
#include "runtime/verify_memory.h"
#include "runtime/verify_sums.h"

namespace smddp {

struct VerifiedCall {
  RequestKind kind = RequestKind::kAllreduce;
  std::string name;  // "allreduce 'x'"
  std::vector<TensorRef> tensors;
  std::vector<std::string> tensor_names;  // may be empty, or hold empty ones
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0, postscale = 1.0;
  WireDType wire_dtype;
  int root = 0;                 // inside the session
  std::vector<int64_t> splits;  // alltoall: rows for each rank; empty: as many for each
};

// Two cells that should be equal and are not. Ranks are counted inside the session.
struct Difference {
  int tensor = 0;
  int first_rank = 0, first_cell = 0;
  int other_rank = 0, other_cell = 0;
  uint64_t first_bytes = 0, other_bytes = 0;
  std::vector<int> others;  // all ranks that have something else than `first_rank`
};

class Verification {
 public:
  // `fabric` outlives it, and so does the memory of the call.
  Verification(const Fabric& fabric, VerifiedCall call);

  const std::string& name() const { return call_.name; }
  // The memory of a gathered result, once it is known: `rows` of every rank.
  void SetResult(int tensor, void* result, const std::vector<int64_t>& rows);
  void SampleInputs();   // before anything moves
  void SampleOutputs();  // after everything has
  // For tests: one bit of all input, or output, memory. False: there are not so many.
  bool Flip(const FlippedBit& bit);

  // In 64-bit words; the same on all ranks.
  size_t record_words() const { return 2 * cells_.size() + kWordsPerPart * parts_.size(); }
  void WriteRecord(uint64_t* record) const;
  // `records`: those of all ranks, one after the other. Null, or "": all is well.
  std::optional<Difference> FindDifference(const std::vector<uint64_t>& records) const;
  std::string FindWrongSum(const std::vector<uint64_t>& records) const;

  // Of elements `begin` to `end` of a cell of mine.
  uint64_t ChecksumOfRange(int cell, uint64_t begin, uint64_t end) const;
  const Cell& cell(int index) const { return cells_[index].memory; }
  DType dtype_of(const Difference& difference) const { return call_.tensors[difference.tensor].dtype; }
  // "tensor 1, 'dense/kernel' (float32 [3, 4])"
  std::string DescribeTensor(int tensor) const;
  // "what rank 1 brought", "the result of rank 2"
  std::string DescribeCell(int rank, int cell) const;
  // "the block of rank 1 in "; "" where there are no blocks
  std::string DescribeBlock(const Difference& difference) const;
  int KnownAs(int rank) const { return fabric_.topology.global_rank(rank); }
  const Fabric& fabric() const { return fabric_; }

 private:
  static constexpr size_t kWordsPerPart = 5;
  struct Sampled {
    Cell memory;
    uint64_t checksum = 0;
  };
  struct Part {
    int tensor = 0;
    Range elements;
    int owner = 0;  // whose result holds it (of an allreduce, where all do: rank 0's is compared)
    PartSum input, output;
  };
  bool reduces() const { return call_.kind == RequestKind::kAllreduce || call_.kind == RequestKind::kReducescatter; }
  int size() const { return fabric_.topology.size(); }
  int rank() const { return fabric_.topology.rank(); }
  SumRule RuleOf(int tensor) const;
  void AddCells();
  void AddParts();
  void CutIntoParts(int tensor, Range elements, int owner);
  void Sample(Sampled* cell, int tensor) const;
  int TensorOfCell(int cell) const;
  std::byte* OutputOf(const Part& part) const;
  std::vector<Cell> AllMemory(bool outputs) const;
  std::string DescribeWrongSum(const Part& part, const SumVerdict& verdict, double came) const;

  // Reads the records.
  uint64_t BytesOf(const std::vector<uint64_t>& records, int rank, int cell) const;
  bool Same(const std::vector<uint64_t>& records, int rank, int cell, int other_rank, int other_cell) const;
  PartSum SumOf(const std::vector<uint64_t>& records, int rank, size_t part, bool output) const;
  void Compare(const std::vector<uint64_t>& records, int tensor, int rank, int cell, int other_rank, int other_cell,
               std::optional<Difference>* found) const;
  int MostCommon(const std::vector<uint64_t>& records, int cell) const;

  const Fabric& fabric_;
  const VerifiedCall call_;
  int input_cells_ = 0;         // they come first
  std::vector<Sampled> cells_;  // as many on every rank; those of which this rank has nothing are empty
  std::vector<Part> parts_;
};

}  // namespace smddp
