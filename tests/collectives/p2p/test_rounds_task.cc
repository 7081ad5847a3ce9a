#include "collectives/p2p/rounds_task.h"
#include "native/members.h"

namespace smddp {
namespace {

using Then = Round::Then;

// Two members with two blocks of 32 elements; `then` of the second round.
std::vector<std::vector<float>> Run(Then then, std::vector<std::vector<float>> data) {
  Members members(2);
  std::vector<TaskPtr> tasks;
  const auto combine = [](void* into, const void* first, const void* second, int64_t elements) -> TaskPtr {
    for (int64_t i = 0; i < elements; ++i) {  // not commutative
      static_cast<float*>(into)[i] = 10 * static_cast<const float*>(first)[i] + static_cast<const float*>(second)[i];
    }
    return InSteps("combining", 2, 1, [](Range) {});
  };
  for (int member = 0; member < 2; ++member) {
    RailCall call;
    call.data = {data[member].data(), data[member].size() * sizeof(float)};
    call.elements = static_cast<int64_t>(data[member].size());
    const int other = 1 - member;
    Rounds rounds;
    rounds.blocks = 2;
    rounds.list = {{other, {other, 1}, other, {member, 1}, then},  // each gives the block of the other
                   {other, {member, 1}, other, {other, 1}, Then::kKeep}};
    tasks.push_back(RunRounds("test", members.group(), members.transport(member), call, rounds, combine));
    CHECK(Has(tasks.back()->Describe(), "test, round 1 of 2"));
  }
  members.Run(std::move(tasks));
  return data;
}

TEST_CASE("rounds: blocks are exchanged, combined in the order that is asked for, and given back") {
  std::vector<std::vector<float>> data = {ValuesOf(0, 64), ValuesOf(1, 64)};
  const auto after = Run(Then::kAddAfterMine, data), before = Run(Then::kAddBeforeMine, data);
  const auto kept = Run(Then::kKeep, data);
  for (int member = 0; member < 2; ++member) {
    for (int i = 0; i < 64; ++i) {
      const int owner = i / 32;
      const float mine = data[owner][i], theirs = data[1 - owner][i];
      CHECK(after[member][i] == 10 * mine + theirs);
      CHECK(before[member][i] == 10 * theirs + mine);
      CHECK(kept[member][i] == theirs);
    }
  }
}

TEST_CASE("rounds: a block without elements takes part") {
  const auto data = Run(Then::kAddAfterMine, {ValuesOf(0, 5), ValuesOf(1, 5)});  // all of it in the first block
  for (int i = 0; i < 5; ++i) CHECK(data[1][i] == 10 * ValuesOf(0, 5)[i] + ValuesOf(1, 5)[i]);
  CHECK(data[0] == data[1]);
}

}  // namespace
}  // namespace smddp
