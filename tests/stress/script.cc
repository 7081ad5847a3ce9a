#include "stress/script.h"

#include <algorithm>

#include "core/env/env.h"

namespace stress {

using smddp::DType;
using smddp::ReduceOp;
using smddp::RequestKind;

namespace {

const std::vector<std::vector<std::string>> kLayouts = {
    {"a"},
    {"a", "a"},
    {"a", "b"},
    {"a", "a", "a"},
    {"a", "a", "b"},
    {"a", "a", "a", "a"},
    {"a", "a", "b", "b"},
    {"a", "b", "a", "b"},
    {"a", "b", "c", "d"},
    {"a", "a", "b", "b", "c", "c"},
    {"a", "a", "a", "a", "a", "b", "b", "b"},
};

template <class T>
T Pick(Random& random, const std::vector<T>& from) {
  return from[Draw(random, static_cast<int>(from.size()))];
}

int64_t DrawElements(Random& random) {
  switch (Draw(random, 8)) {
    case 0:
      return Draw(random, 3);
    case 1:
      return 8000 + Draw(random, 20000);
    case 2:
    case 3:
      return 500 + Draw(random, 3000);
    default:
      return 1 + Draw(random, 300);
  }
}

DType DrawReducible(Random& random, ReduceOp op) {
  if (op == ReduceOp::kAdasum) return Pick<DType>(random, {DType::kFloat32, DType::kFloat64});
  while (true) {
    const DType dtype = static_cast<DType>(Draw(random, smddp::kDTypeCount));
    if (IsReducible(dtype) && !(dtype == DType::kBool && op == ReduceOp::kAverage)) return dtype;
  }
}

void DrawReduction(Random& random, bool joins, Op* op) {
  const std::vector<ReduceOp> with_joined = {ReduceOp::kSum, ReduceOp::kAverage};
  std::vector<ReduceOp> all = {ReduceOp::kSum, ReduceOp::kSum,     ReduceOp::kAverage, ReduceOp::kMin,
                               ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kAdasum};
  const bool few = joins || op->kind == RequestKind::kReducescatter;
  op->op = Pick(random, few ? with_joined : all);
  const int tensors = op->op == ReduceOp::kAdasum ? 1 : 1 + Draw(random, 3);
  for (int i = 0; i < tensors; ++i) {
    op->dtypes.push_back(DrawReducible(random, op->op));
    const bool rows = op->kind == RequestKind::kReducescatter;
    op->shapes.push_back(rows ? std::vector<int64_t>{Draw(random, 40), 1 + Draw(random, 20)}
                              : std::vector<int64_t>{DrawElements(random)});
  }
}

Op DrawOp(Random& random, const Script& script, bool joins, const std::string& name) {
  Op op;
  op.name = name;
  op.salt = Draw(random, 1000);
  op.in_place = Draw(random, 2) == 0;
  const int kind = Draw(random, joins ? 5 : 14);
  if (kind < 2) {
    op.kind = RequestKind::kPlan;
    return op;
  }
  if (kind < 6) {
    op.kind = RequestKind::kAllreduce;
    DrawReduction(random, joins, &op);
  } else if (kind < 8) {
    op.kind = RequestKind::kReducescatter;
    op.in_place = false;
    DrawReduction(random, joins, &op);
  } else if (kind == 13) {
    op.kind = RequestKind::kBarrier;
  } else {
    op.kind = kind < 10 ? RequestKind::kBroadcast : kind < 12 ? RequestKind::kAllgather : RequestKind::kAlltoall;
    const int tensors = op.kind == RequestKind::kAlltoall ? 1 : 1 + Draw(random, 2);
    for (int i = 0; i < tensors; ++i) {
      op.dtypes.push_back(static_cast<DType>(Draw(random, smddp::kDTypeCount)));
      op.shapes.push_back({Draw(random, 30), DrawElements(random) / 20});
    }
    op.root = Draw(random, script.size());
    op.even_split = op.kind == RequestKind::kAlltoall && Draw(random, 3) == 0;
  }
  if (op.kind == RequestKind::kAllreduce && !joins && script.size() > 1 && Draw(random, 12) == 0) {
    op.mismatch = Draw(random, script.size());
  } else if (Draw(random, 25) == 0) {
    op.cancelled = Draw(random, script.size());
  }
  return op;
}

Round DrawRound(Random& random, const Script& script, int number) {
  Round round;
  round.joins = Draw(random, 4) == 0;
  const int ops = 1 + Draw(random, round.joins ? 12 : 30);
  int steps = 0;
  for (int i = 0; i < ops; ++i) {
    round.ops.push_back(DrawOp(random, script, round.joins, "op " + std::to_string(number) + "." + std::to_string(i)));
    if (round.ops.back().kind == RequestKind::kPlan) round.ops.back().step = steps++;
  }
  for (int rank = 0; rank < script.size(); ++rank) {
    round.share.push_back(round.joins ? Draw(random, ops + 1) : ops);
  }
  return round;
}

}  // namespace

int Draw(Random& random, int below) { return static_cast<int>(random() % static_cast<uint64_t>(below)); }

Script DrawScript(uint64_t seed) {
  Random random(seed);
  Script script;
  script.seed = seed;
  smddp::ClusterOptions& options = script.options;
  options.host_of_rank = Pick(random, kLayouts);
  options.chunk_bytes = Pick<int64_t>(random, {1024, 4096, 65536});
  options.bucket_bytes = Pick<int64_t>(random, {0, 4096, 65536, smddp::kAutoBytes});
  options.gradient_order = Pick<std::string>(random, {"observed", "observed", "listed"});
  options.rail_algorithm =
      Pick<std::string>(random, {"auto", "auto", "direct", "ring", "recursive_doubling", "halving_doubling"});
  if (Draw(random, 4) == 0) {
    for (int rank = 0; rank < script.size(); ++rank) options.global_ranks.push_back(2 * rank + 1);
    std::shuffle(options.global_ranks.begin(), options.global_ranks.end(), random);
  }
  const int tensors = 1 + Draw(random, 12);
  for (int i = 0; i < tensors; ++i) {
    script.plan.push_back({Pick<DType>(random, {DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kInt32}),
                           {DrawElements(random)}});
  }
  const int rounds = 1 + Draw(random, 4);
  for (int number = 0; number < rounds; ++number) script.rounds.push_back(DrawRound(random, script, number));
  script.ending = Pick<Ending>(random, {Ending::kAllDone, Ending::kAllDone, Ending::kOneLeaves, Ending::kAllStop});
  script.threads = 1 + Draw(random, 3);
  options.tcp = seed % 3 == 0;
  // Where ranks end early, they free memory that others may read then, as no real arena does.
  options.shared_tensors = script.ending == Ending::kAllDone && seed % 2 == 0;
  script.observed = Draw(random, 2) == 0;
  script.timeline = Draw(random, 8) == 0;
  return script;
}

std::vector<int> Script::Bringing(const Round& round, const Op& op) const {
  std::vector<int> ranks;
  const int place = static_cast<int>(&op - round.ops.data());
  for (int rank = 0; rank < size(); ++rank) {
    if (op.kind != RequestKind::kPlan) {
      if (place < round.share[rank]) ranks.push_back(rank);
      continue;
    }
    const auto is_step = [](const Op& other) { return other.kind == RequestKind::kPlan; };
    const auto steps = std::count_if(round.ops.begin(), round.ops.begin() + round.share[rank], is_step);
    if (op.step < steps) ranks.push_back(rank);
  }
  return ranks;
}

int64_t RowsOf(const Op& op, int rank) { return (op.shapes[0][0] + rank * 3 + op.salt) % 17; }

int64_t SplitOf(const Op& op, int rank, int to) {
  return op.even_split ? op.shapes[0][0] % 5 + rank : (op.salt + rank * 5 + to * 3) % 7;
}

}  // namespace stress
