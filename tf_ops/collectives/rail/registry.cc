// The algorithms between nodes. Those that are lists of rounds (collectives/patterns) are made here.
#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/doubling.h"
#include "collectives/rail/direct_exchange.h"

namespace smddp {
namespace {

// A ring over P members and P blocks.
//
// In step s of the first half member m sends block m - s to its right neighbour, which adds its own: after P - 1
// steps block b has passed all members, starting at member b, and is complete at member b - 1. In the second half the
// sums pass all members once more.
Rounds RingRounds(int size, int me) {
  const auto wrap = [size](int position) { return (position % size + size) % size; };
  Rounds rounds;
  rounds.blocks = size;
  for (int step = 0; step < 2 * (size - 1); ++step) {
    const Round::Then then = step < size - 1 ? Round::Then::kAddBeforeMine : Round::Then::kKeep;
    rounds.list.push_back({wrap(me + 1), {wrap(me - step), 1}, wrap(me - 1), {wrap(me - step - 1), 1}, then});
  }
  return rounds;
}

AlgorithmCost CostOfRing(int members) {
  const int steps = 2 * (members - 1);
  return {steps, steps, static_cast<double>(steps) / members};
}

AlgorithmCost CostOfRecursiveDoubling(int members) {
  const Folding folding(members);
  const int exchanges = folding.doublings() + folding.fold();
  return {exchanges + folding.fold(), exchanges, static_cast<double>(exchanges)};
}

AlgorithmCost CostOfHalvingDoubling(int members) {
  const Folding folding(members);
  const int exchanges = 2 * folding.doublings() + folding.fold();
  return {exchanges + folding.fold(), exchanges, 2.0 * (folding.places() - 1) / folding.places() + folding.fold()};
}

// `rounds_of`: what member `me` of `members` does.
AllreduceAlgorithm InRounds(const char* name, AlgorithmCost (*cost)(int members), SumOrder order,
                            Rounds (*rounds_of)(int members, int me)) {
  const auto begin = [task = Concat(name, " between nodes"), rounds_of](const Group& group, int my_rank,
                                                                        Transport& transport, const Compute& compute,
                                                                        const RailCall& call) {
    const auto add = [&compute, dtype = call.dtype, op = call.op](void* into, const void* first, const void* second,
                                                                  int64_t elements) -> TaskPtr {
      const void* sources[] = {first, second};
      compute.Reduce(into, sources, 2, elements, dtype, op);
      return nullptr;
    };
    return RunRounds(task, group, transport, call, rounds_of(group.size(), group.position_of(my_rank)), add);
  };
  return {name, cost, order, begin};
}

}  // namespace

const std::vector<const AllreduceAlgorithm*>& Algorithms() {
  // Blocks go round from neighbour to neighbour, first to be summed, then as sums.
  static const AllreduceAlgorithm ring = InRounds("ring", &CostOfRing, SumOrder::kRing, &RingRounds);
  // Members exchange and sum everything with partners at distances P/2 ... 1.
  static const AllreduceAlgorithm recursive_doubling =
      InRounds("recursive_doubling", &CostOfRecursiveDoubling, SumOrder::kDoubling, &RecursiveDoublingRounds);
  // Rabenseifner's: partners at distances P/2 ... 1 split and sum what they hold, then give the sums back.
  static const AllreduceAlgorithm halving_doubling =
      InRounds("halving_doubling", &CostOfHalvingDoubling, SumOrder::kDoubling, &HalvingDoublingRounds);
  static const std::vector<const AllreduceAlgorithm*> all = {&DirectExchange(), &ring, &recursive_doubling,
                                                             &halving_doubling};
  return all;
}

const AllreduceAlgorithm* AlgorithmByName(const std::string& name) {
  for (const AllreduceAlgorithm* algorithm : Algorithms()) {
    if (name == algorithm->name) return algorithm;
  }
  return nullptr;
}

}  // namespace smddp
