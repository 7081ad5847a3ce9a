// The ranks' proposals before a process set is made or ended, and the decision that follows. Pure functions: all
// ranks see the same proposals and reach the same result.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/wire.h"

namespace smddp {

using RankLists = std::map<int, std::vector<int>>;  // by number of the set

constexpr int kMaxSets = 1 << 30;  // limit of the sets ever made

// The proposal of one rank.
struct SetProposal {
  struct Entry {
    std::vector<int> ranks;
    bool own = false;  // from a communicator: ranks may pass different ones, or none where they are not members
    SMDDP_FIELDS(ranks, own);
  };
  int removes = 0;             // number of a set; 0: it adds `entries`
  int next_number = 1;         // the first number that was never used here
  std::vector<Entry> entries;  // one for each set

  SMDDP_FIELDS(removes, next_number, entries);
  bool IsWellFormed() const { return removes >= 0 && next_number >= 1 && next_number <= kMaxSets; }
};

// `rank`: the sender, for the error message.
Result<SetProposal> DecodeProposal(const std::string& bytes, int rank);

// A set that is to be made, from the entries at `position`.
struct NewSet {
  int number = 0;
  size_t position = 0;
  std::vector<int> ranks;
};

// The sets that all ranks' proposals result in, given the existing ones. An error where the proposals differ, or are
// not possible.
Result<std::vector<NewSet>> SetsToMake(const std::vector<SetProposal>& by_rank, const RankLists& there);
// OK when all ranks want to end the same set.
Status CheckSameKind(const std::vector<SetProposal>& by_rank);

// [0, 2]
std::string RanksText(const std::vector<int>& ranks);

}  // namespace smddp
