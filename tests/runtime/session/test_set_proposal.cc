#include "native/testing.h"
#include "runtime/session/set_proposal.h"

namespace smddp {
namespace {

using Ranks = std::vector<int>;
const RankLists kAll = {{0, {0, 1, 2, 3}}};

SetProposal Adds(const std::vector<Ranks>& lists, bool own = false, int next_number = 1) {
  SetProposal proposal;
  proposal.next_number = next_number;
  for (const Ranks& ranks : lists) proposal.entries.push_back({ranks, own});
  return proposal;
}
std::vector<SetProposal> FromAll(const SetProposal& proposal) { return std::vector<SetProposal>(4, proposal); }

TEST_CASE("set proposal: equal lists become sets with the next numbers that are free on all ranks") {
  std::vector<SetProposal> by_rank = FromAll(Adds({{0, 2}, {3, 1}}, false, 2));
  by_rank[2].next_number = 5;
  const std::vector<NewSet> sets = Value(SetsToMake(by_rank, kAll));
  REQUIRE(sets.size() == 2);
  CHECK(sets[0].number == 5);
  CHECK(sets[0].ranks == Ranks{0, 2});
  CHECK(sets[1].number == 6);
  CHECK(sets[1].position == 1);
  CHECK(sets[1].ranks == Ranks{3, 1});
}

TEST_CASE("set proposal: communicators may differ, when their members agree") {
  std::vector<SetProposal> by_rank = {Adds({{0, 1}}, true), Adds({{0, 1}}, true), Adds({{2, 3}}, true),
                                      Adds({{2, 3}}, true)};
  CHECK(Value(SetsToMake(by_rank, kAll)).size() == 2);
  by_rank[3] = Adds({{}}, true);
  CHECK(Has(SetsToMake(by_rank, kAll).status().message(),
            "a communicator has the ranks [2, 3], but rank 3 passed one with the ranks []"));
  by_rank[2] = by_rank[3];
  CHECK(Value(SetsToMake(by_rank, kAll)).size() == 1);
}

TEST_CASE("set proposal: what cannot be is refused") {
  const auto refused = [](const SetProposal& proposal) {
    return SetsToMake(FromAll(proposal), kAll).status().message();
  };
  CHECK(Has(refused(Adds({{0, 4}})), "different ranks from 0 to 3. Received: [0, 4]"));
  CHECK(Has(refused(Adds({{1, 1}})), "different ranks from 0 to 3"));
  CHECK(Has(refused(Adds({{-1}})), "different ranks from 0 to 3"));
  CHECK(Has(refused(Adds({{3, 2, 1, 0}})), "process set 0, which is all ranks"));
  CHECK(Has(refused(Adds({{0, 1}, {1, 0}})), "exists already: process set 1."));
}

TEST_CASE("set proposal: ranks that call for something else are named") {
  std::vector<SetProposal> by_rank = FromAll(Adds({{0, 1}}));
  by_rank[2] = Adds({{0, 2}});
  CHECK(Begins(SetsToMake(by_rank, kAll).status().message(),
               "Mismatched process sets: rank 0 has ranks [0, 1], rank 2 has ranks [0, 2]."));
  by_rank[2] = Adds({});
  CHECK(Has(SetsToMake(by_rank, kAll).status().message(), "rank 2 has no process sets"));
  SetProposal removes;
  removes.removes = 3;
  by_rank[2] = removes;
  CHECK(Has(SetsToMake(by_rank, kAll).status().message(), "rank 2 has to remove process set 3"));
  CHECK(CheckSameKind(FromAll(removes)).ok());
  std::vector<SetProposal> removals = FromAll(removes);
  removals[1].removes = 2;
  CHECK_FALSE(CheckSameKind(removals).ok());
}

TEST_CASE("set proposal: proposals travel") {
  const SetProposal got = Value(DecodeProposal(Encode(Adds({{0, 2}, {}}, true, 7)), 1));
  CHECK(got.next_number == 7);
  REQUIRE(got.entries.size() == 2);
  CHECK(got.entries[0].ranks == Ranks{0, 2});
  CHECK(got.entries[0].own);
  CHECK(Has(DecodeProposal("?", 1).status().message(), "The proposal of rank 1"));
  CHECK_FALSE(DecodeProposal(Encode(Adds({}, false, 0)), 1).ok());
}

}  // namespace
}  // namespace smddp
