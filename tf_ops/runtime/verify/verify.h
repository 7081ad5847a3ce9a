// SMDDP_VERIFY=1: the result of every collective is checked before its caller gets it.
//
// The task of a collective runs inside a task that checks it. The inputs are read before the collective begins, the
// outputs after it has ended. Then all ranks exchange what they have read, and compare it. What is wrong is an error of
// the task, kDataLoss, which ends the session on all ranks.
//
//   allreduce       the results of all ranks are equal, and the sum of the inputs
//   reducescatter   each rank's result is the sum of the inputs
//   broadcast       every result is the root's input
//   allgather       every block of every result is its rank's input
//   alltoall        every block of every result is what its rank sent
//
// Equal means equal checksums. A sum is checked by the sums of all elements: of floating types (Sum, Average) within
// the possible rounding error, of integers (Sum without scaling) exactly. All ranks compare the same records and
// reach the same conclusion.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "runtime/api/session.h"

namespace smddp {

// Its name is "allreduce 'x'", its root that inside the session. Without splits an alltoall sends equal numbers of
// rows.
struct VerifiedCall : Collective {
  explicit VerifiedCall(RequestKind of) { kind = of; }  // which decides what is compared

  std::vector<TensorRef> tensors;
  std::vector<std::string> tensor_names;       // may be empty, or hold empty ones
  std::vector<std::vector<int64_t>> received;  // allgather, alltoall: for each tensor, rows from each rank

  // The memory of a result that the collective has allocated.
  void SetResult(int tensor, void* result, const std::vector<int64_t>& rows);
};

// The reading of one piece of memory.
struct Reading {
  uint64_t checksum = 0;
  uint64_t integer = 0;            // the sum of the elements, if they are integers, modulo 2^64
  double real = 0, magnitude = 0;  // the sums of the elements and of their absolute values, if they are floating
};

// Reads the memory of one collective on one rank, and compares the readings of all ranks.
class Verification {
 public:
  // `fabric` and the memory of the call outlive it.
  Verification(const Fabric& fabric, VerifiedCall call) : fabric_(fabric), call_(std::move(call)) {}

  VerifiedCall& call() { return call_; }
  void ReadInputs();   // before the collective begins
  void ReadOutputs();  // after it has ended
  // Available after ReadOutputs. The same length on every rank.
  const std::vector<Reading>& record() const { return record_; }
  // `records`: those of all ranks, in rank order. The error names the collective, the tensor and the ranks.
  Status Compare(const std::vector<Reading>& records) const;

 private:
  struct Piece {
    int tensor = 0, block = 0;
    int64_t elements = 0;
  };
  bool scatters() const { return call_.kind == RequestKind::kReducescatter; }
  bool reduces() const { return scatters() || call_.kind == RequestKind::kAllreduce; }
  int size() const { return fabric_.topology.size(); }
  int rank() const { return fabric_.topology.rank(); }
  std::vector<int64_t> BlocksOf(const TensorRef& tensor) const;
  void ReadBlocks(int tensor, const void* memory, const std::vector<int64_t>& rows, int only = -1);
  bool IsSum(const std::vector<Reading>& records, size_t output, int rank) const;
  std::string NameOfRanks(const std::vector<int>& ranks) const;
  Status Failure(const Piece& piece, const std::vector<int>& ranks, const std::string& what) const;

  const Fabric& fabric_;
  VerifiedCall call_;
  std::vector<Reading> record_;  // inputs, then outputs
  std::vector<Piece> pieces_;    // the piece of each reading
  size_t inputs_ = 0;
};

class Verifier {
 public:
  // `fabric` outlives it.
  Verifier(const Fabric& fabric, bool on) : fabric_(fabric), on_(on) {}

  bool on() const { return on_; }

  // Makes the task of a collective; null: there is nothing to wait for. It receives the call, to set results that it
  // allocates; null where nothing is checked. The call outlives the task.
  using MakeTask = std::function<Result<TaskPtr>(VerifiedCall* call)>;
  // The same task with checks. Without a call nothing is checked; the ranks must agree on that.
  Result<TaskPtr> Begin(std::optional<VerifiedCall> call, uint32_t operation, const MakeTask& make_task) const;

 private:
  const Fabric& fabric_;
  const bool on_;
};

}  // namespace smddp
