#include "stress/rank.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "core/shape.h"
#include "core/slice.h"
#include "core/sync/test_delay.h"

namespace stress {

using smddp::DType;
using smddp::RequestKind;
using smddp::Result;
using smddp::Status;
using smddp::TensorRef;

// --- Answers ---

smddp::DoneCallback Answers::Expect(std::string what, std::function<void(const Status&)> look) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++open_;
  const auto answered = std::make_shared<std::atomic<int>>(0);
  return [this, answered, what = std::move(what), look = std::move(look)](const Status& status) {
    if (answered->fetch_add(1) != 0) Fail(what + " was answered twice; the second time: " + status.ToString());
    if (look) look(status);
    std::lock_guard<std::mutex> lock(mutex_);
    --open_;
    changed_.notify_all();
  };
}

void Answers::WaitAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return open_ == 0; });
}

// --- Rank ---

Rank::Rank(const Script& script, smddp::Session& session, int rank) : script_(script), session_(session), rank_(rank) {
  smddp::PlanSpec spec;
  spec.key = "stress";
  spec.tensors = script.plan;
  spec.op = smddp::ReduceOp::kSum;
  Result<int> plan = session.RegisterPlan(spec);
  if (!plan.ok()) Fail("RegisterPlan: " + plan.status().ToString());
  plan_ = *plan;
}

std::string Rank::Where(const Op& op) const {
  return std::string(NameOf(op.kind)) + " '" + op.name + "' on rank " + std::to_string(rank_);
}

smddp::DoneCallback Rank::Expect(const Op& op, bool check, std::function<void()> look) {
  const bool refused = op.mismatch >= 0;
  return answers_.Expect(Where(op), [this, &op, check, refused, look = std::move(look)](const Status& status) {
    smddp::InjectTestDelay();
    if (!check) return;
    if (refused) {
      if (status.reason() != smddp::Reason::kTensorsDiffer) Fail(Where(op) + ": no mismatch: " + status.ToString());
      return;
    }
    int other = 0;
    const int code = 1 + static_cast<int>(status.reason());
    if (!op.ended->compare_exchange_strong(other, code) && other != code) {
      Fail(Where(op) + " ended otherwise than on another rank: " + status.ToString());
    }
    if (op.cancelled >= 0 && status.reason() == smddp::Reason::kStepGivenUp) return;  // the others came too late
    if (!status.ok()) Fail(Where(op) + ": " + status.ToString());
    if (look) look();
  });
}

void Rank::Run(const Round& round) {
  std::vector<const Op*> mine;
  for (int i = 0; i < round.share[rank_]; ++i) mine.push_back(&round.ops[i]);
  Random random(script_.seed * 31 + rank_);
  // Steps of the plan stay in order: the n-th tensor that comes belongs to the n-th step.
  std::vector<const Op*> steps;
  const auto rest =
      std::stable_partition(mine.begin(), mine.end(), [](const Op* op) { return op->kind != RequestKind::kPlan; });
  steps.assign(rest, mine.end());
  mine.erase(rest, mine.end());
  std::shuffle(mine.begin(), mine.end(), random);

  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < script_.threads; ++i) {
    threads.emplace_back([&, i] {
      if (i == 0) {
        for (const Op* op : steps) Submit(round, *op, true);
      }
      for (size_t at = next++; at < mine.size(); at = next++) {
        smddp::InjectTestDelay();
        Submit(round, *mine[at], true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto last = std::make_shared<int>(-1);
  if (round.joins) {
    session_.Join(last.get(), answers_.Expect("join", [this, last](const Status& status) {
      if (!status.ok()) Fail("join on rank " + std::to_string(rank_) + ": " + status.ToString());
      const bool known = session_.topology().rank_of_global(*last) >= 0;
      if (!known) Fail("join: the last rank is " + std::to_string(*last));
    }));
  }
  answers_.WaitAll();
}

void Rank::Begin(const Round& round, int ops) {
  bool stepped = false;
  for (int i = 0; i < ops; ++i) {
    const bool is_step = round.ops[i].kind == RequestKind::kPlan;
    if (!is_step || !std::exchange(stepped, true)) Submit(round, round.ops[i], false);
  }
}

void Rank::AskTheDead() {
  const auto refused = [](const Status& status) {
    if (status.ok()) Fail("a session that has ended said OK");
  };
  session_.Submit({RequestKind::kBarrier, "too late", {}}, answers_.Expect("barrier of a dead session", refused));
  session_.ReducePlanned({plan_, 0}, TensorRef(), answers_.Expect("tensor of a dead session", refused));
  int last = 0;
  session_.Join(&last, answers_.Expect("join of a dead session", refused));
  session_.Cancel("too late");
  answers_.WaitAll();
}

// --- Requests ---

Rank::Memory& Rank::NewMemory() {
  std::lock_guard<std::mutex> lock(mutex_);
  return memory_.emplace_back();
}

TensorRef Rank::Tensor(Memory* memory, DType dtype, const std::vector<int64_t>& shape, bool in_place) {
  const size_t bytes = static_cast<size_t>(smddp::ElementCount(shape)) * SizeOf(dtype);
  Bytes& input = memory->inputs.emplace_back(bytes);
  Bytes& output = memory->outputs.emplace_back(in_place ? 0 : bytes);
  return {dtype, shape, input.data(), in_place ? input.data() : output.data()};
}

void Rank::Submit(const Round& round, const Op& op, bool check) {
  if (op.kind == RequestKind::kPlan) {
    SubmitStep(round, op, check);
  } else if (op.reduces()) {
    SubmitReduction(round, op, check);
  } else {
    SubmitMove(op, check);
  }
  if (op.cancelled == rank_) session_.Cancel(op.name);
}

void Rank::CheckReduced(const Op& op, const std::vector<int>& ranks, DType dtype, int64_t first, const Bytes& data,
                        int salt) const {
  const int64_t elements = static_cast<int64_t>(data.size() / SizeOf(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    const double expected = Reduced(op.op, dtype, ranks, script_.size(), salt, first + i);
    const double came = Read(dtype, data, i);
    if (Same(dtype, expected, came)) continue;
    Fail(Where(op) + ", " + NameOf(op.op) + " of " + NameOf(dtype) + ": element " + std::to_string(first + i) + " is " +
         std::to_string(came) + " instead of " + std::to_string(expected));
  }
}

void Rank::SubmitReduction(const Round& round, const Op& op, bool check) {
  Memory& memory = NewMemory();
  const bool scatters = op.kind == RequestKind::kReducescatter;
  smddp::Request request(op.kind, op.name, {}, {op.op});
  std::vector<int64_t> firsts;
  for (size_t t = 0; t < op.shapes.size(); ++t) {
    std::vector<int64_t> shape = op.shapes[t];
    if (op.mismatch == rank_) ++shape[0];
    TensorRef tensor = Tensor(&memory, op.dtypes[t], shape, op.in_place);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      Write(op.dtypes[t], &memory.inputs[t], i, Brought(op.op, rank_, op.salt + static_cast<int>(t), i));
    }
    firsts.push_back(0);
    if (scatters) {
      const smddp::Range rows = smddp::RowsOf(shape[0], script_.size(), rank_);
      firsts.back() = rows.begin * shape[1];
      memory.outputs[t].resize(static_cast<size_t>(rows.size()) * tensor.row_bytes());
      tensor.output = memory.outputs[t].data();
    }
    request.tensors.push_back(std::move(tensor));
  }
  const auto look = [this, &memory, &op, firsts, ranks = script_.Bringing(round, op)] {
    for (size_t t = 0; t < op.shapes.size(); ++t) {
      CheckReduced(op, ranks, op.dtypes[t], firsts[t], op.in_place ? memory.inputs[t] : memory.outputs[t],
                   op.salt + static_cast<int>(t));
    }
  };
  session_.Submit(std::move(request), Expect(op, check, look));
}

void Rank::SubmitStep(const Round& round, const Op& op, bool check) {
  Memory& memory = NewMemory();
  std::vector<TensorRef> tensors;
  for (size_t t = 0; t < script_.plan.size(); ++t) {
    tensors.push_back(Tensor(&memory, script_.plan[t].dtype, script_.plan[t].shape, true));
    for (int64_t i = 0; i < tensors[t].elements(); ++i) {
      Write(tensors[t].dtype, &memory.inputs[t], i, Brought(op.op, rank_, op.step + static_cast<int>(t), i));
    }
  }
  std::vector<int> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  Random random(script_.seed * 131 + rank_ * 7 + op.step);
  std::shuffle(order.begin(), order.end(), random);
  if (check) step_.WaitAll();  // a step begins when the last one is over
  smddp::PlannedTensor where = {plan_};
  where.run = ++run_;
  for (const int t : order) {
    const auto look = [this, &memory, &op, t, ranks = script_.Bringing(round, op)] {
      CheckReduced(op, ranks, script_.plan[t].dtype, 0, memory.inputs[t], op.step + t);
    };
    where.index = t;
    session_.ReducePlanned(
        where, tensors[t],
        [answered = Expect(op, check, look), over = step_.Expect(Where(op), nullptr)](const Status& s) {
          over(s);
          answered(s);  // last: this rank may go then
        });
  }
}

// --- What is only moved ---

void Rank::SubmitMove(const Op& op, bool check) {
  if (op.kind == RequestKind::kBarrier) return session_.Submit({op.kind, op.name, {}}, Expect(op, check, nullptr));
  Memory& memory = NewMemory();
  const int size = script_.size();
  std::vector<TensorRef> tensors;
  std::vector<int64_t> splits;
  for (int to = 0; to < size; ++to) {
    if (op.kind == RequestKind::kAlltoall) splits.push_back(op.even_split ? SplitOf(op, 0, 0) : SplitOf(op, rank_, to));
  }
  for (size_t t = 0; t < op.shapes.size(); ++t) {
    std::vector<int64_t> shape = op.shapes[t];
    if (op.kind == RequestKind::kAllgather) shape[0] = RowsOf(op, rank_);
    if (op.kind == RequestKind::kAlltoall) shape[0] = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    tensors.push_back(Tensor(&memory, op.dtypes[t], shape, op.in_place));
    for (size_t i = 0; i < memory.inputs[t].size(); ++i) {
      memory.inputs[t][i] = Pattern(rank_, op.salt + static_cast<int>(t), i);
    }
  }
  const auto results = std::make_shared<std::vector<Bytes>>(op.shapes.size());
  auto done = Expect(op, check, [this, &op, &memory, results] { CheckMoved(op, memory, *results); });
  smddp::Request request(op.kind, op.name, tensors);
  request.allocate = [results, tensors](int tensor, const std::vector<int64_t>& rows) -> Result<void*> {
    Bytes& result = (*results)[tensor];
    result.resize(std::accumulate(rows.begin(), rows.end(), int64_t{0}) * tensors[tensor].row_bytes());
    return static_cast<void*>(result.data());
  };
  if (op.kind == RequestKind::kBroadcast) request.root = session_.topology().global_rank(op.root);
  request.even_split = op.kind == RequestKind::kAlltoall && op.even_split;
  if (!request.even_split) request.splits = splits;
  session_.Submit(std::move(request), std::move(done));
}

void Rank::CheckMoved(const Op& op, const Memory& memory, const std::vector<Bytes>& results) const {
  for (size_t t = 0; t < op.shapes.size(); ++t) {
    const int salt = op.salt + static_cast<int>(t);
    const size_t row = static_cast<size_t>(op.shapes[t][1]) * SizeOf(op.dtypes[t]);
    const bool broadcast = op.kind == RequestKind::kBroadcast;
    const Bytes& came = !broadcast ? results[t] : op.in_place ? memory.inputs[t] : memory.outputs[t];
    size_t at = 0;
    for (int from = broadcast ? op.root : 0; from < (broadcast ? op.root + 1 : script_.size()); ++from) {
      size_t first = 0, bytes = came.size();
      if (op.kind == RequestKind::kAllgather) bytes = static_cast<size_t>(RowsOf(op, from)) * row;
      if (op.kind == RequestKind::kAlltoall) {
        const auto split = [&](int to) { return op.even_split ? SplitOf(op, 0, 0) : SplitOf(op, from, to); };
        for (int to = 0; to < rank_; ++to) first += static_cast<size_t>(split(to)) * row;
        bytes = static_cast<size_t>(split(rank_)) * row;
      }
      for (size_t i = 0; i < bytes; ++i, ++at) {
        if (at < came.size() && came[at] == Pattern(from, salt, first + i)) continue;
        Fail(Where(op) + ": byte " + std::to_string(at) + " of " + std::to_string(came.size()) + " is wrong");
      }
    }
    if (at != came.size()) Fail(Where(op) + ": " + std::to_string(came.size() - at) + " bytes too many");
  }
}

}  // namespace stress
