// What a whole job does, drawn from one seed: who sits where, with which settings, and what every rank calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "inproc/cluster.h"
#include "runtime/control/messages.h"

namespace stress {

using Random = std::mt19937_64;

// From 0 to `below` - 1.
int Draw(Random& random, int below);

struct Op {
  smddp::RequestKind kind = smddp::RequestKind::kBarrier;  // kPlan: one step of the job's plan
  std::string name;
  int salt = 0;  // tells its values from those of others
  std::vector<smddp::DType> dtypes;
  std::vector<std::vector<int64_t>> shapes;  // where ranks may differ: the first dimension counts for rank 0
  smddp::ReduceOp op = smddp::ReduceOp::kSum;
  int root = 0;
  bool even_split = false;
  bool in_place = false;
  int mismatch = -1;   // the rank that brings another shape; -1: nobody
  int cancelled = -1;  // the rank that gives up the step
  int step = 0;        // kPlan: which step of the round
  // Shared by the ranks, who must agree on it: 0, or 1 + the code that it has ended with on some rank.
  std::shared_ptr<std::atomic<int>> ended = std::make_shared<std::atomic<int>>(0);

  bool reduces() const {
    return kind == smddp::RequestKind::kAllreduce || kind == smddp::RequestKind::kReducescatter ||
           kind == smddp::RequestKind::kPlan;
  }
};

// All ranks do all of it; with `joins` rank r does the first `share[r]` of `ops` and then joins.
struct Round {
  std::vector<Op> ops;
  bool joins = false;
  std::vector<int> share;
};

enum class Ending { kAllDone, kOneLeaves, kAllStop };

struct Script {
  uint64_t seed = 0;
  smddp::ClusterOptions options;
  std::vector<smddp::TensorSpec> plan;
  std::vector<Round> rounds;
  Ending ending = Ending::kAllDone;
  int threads = 1;        // of each rank
  bool observed = false;  // somebody asks for statistics and traces all the time
  bool timeline = false;

  int size() const { return static_cast<int>(options.host_of_rank.size()); }
  // The ranks that bring something to `op` of `round`.
  std::vector<int> Bringing(const Round& round, const Op& op) const;
};

Script DrawScript(uint64_t seed);

// The rows that `rank` brings to an allgather, or sends to `to` in an alltoall.
int64_t RowsOf(const Op& op, int rank);
int64_t SplitOf(const Op& op, int rank, int to);

}  // namespace stress
