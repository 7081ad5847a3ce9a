#include "runtime/session/set_proposal.h"

#include <algorithm>

namespace smddp {
namespace {

std::vector<int> Sorted(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Describe(const SetProposal& proposal) {
  if (proposal.removes > 0) return "to remove process set " + std::to_string(proposal.removes);
  if (proposal.entries.empty()) return "no process sets";
  std::string text;
  for (const SetProposal::Entry& entry : proposal.entries) {
    text += (text.empty() ? "" : " and ") + (entry.own ? "a communicator" : "ranks " + RanksText(entry.ranks));
  }
  return text;
}

bool SameKind(const SetProposal& a, const SetProposal& b) {
  const auto same = [](const SetProposal::Entry& x, const SetProposal::Entry& y) {
    return x.own == y.own && (x.own || x.ranks == y.ranks);
  };
  return a.removes == b.removes &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), same);
}

std::vector<std::vector<int>> ListsAt(const std::vector<SetProposal>& by_rank, size_t position) {
  std::vector<std::vector<int>> lists;
  for (const SetProposal& proposal : by_rank) {
    const std::vector<int>& ranks = proposal.entries[position].ranks;
    const bool is_new = std::find(lists.begin(), lists.end(), ranks) == lists.end();
    if (!ranks.empty() && is_new) lists.push_back(ranks);
  }
  return lists;
}

Status CheckRanks(const std::vector<int>& ranks, int size, const RankLists& there) {
  const std::vector<int> sorted = Sorted(ranks);
  for (size_t i = 0; i < sorted.size(); ++i) {
    const bool twice = i > 0 && sorted[i] == sorted[i - 1];
    if (!twice && sorted[i] >= 0 && sorted[i] < size) continue;
    return Status(Reason::kBadArgument, "A process set must list different ranks from 0 to ", size - 1,
                  ". Received: ", RanksText(ranks), ".");
  }
  for (const auto& [number, other] : there) {
    if (Sorted(other) != sorted) continue;
    return Status(Reason::kBadArgument, "A process set with the ranks ", RanksText(ranks),
                  " exists already: process set ", number,
                  number == 0 ? ", which is all ranks (hvd.global_process_set)." : ".");
  }
  return Status::Ok();
}

// For communicators: every member must have passed the same one.
Status CheckMembers(const std::vector<SetProposal>& by_rank, size_t position, const std::vector<int>& ranks) {
  for (int member : ranks) {
    const std::vector<int>& theirs = by_rank[member].entries[position].ranks;
    if (theirs == ranks) continue;
    return Status(Reason::kBadArgument, "Mismatched process sets: a communicator has the ranks ", RanksText(ranks),
                  ", but rank ", member, " passed one with the ranks ", RanksText(theirs), ".");
  }
  return Status::Ok();
}

}  // namespace

std::string RanksText(const std::vector<int>& ranks) { return "[" + Listed(ranks) + "]"; }

Result<SetProposal> DecodeProposal(const std::string& bytes, int rank) {
  SetProposal proposal;
  if (Decode(bytes, &proposal)) return proposal;
  return Status(Reason::kInternal, "The proposal of rank ", rank, " for process sets cannot be decoded.");
}

Result<std::vector<NewSet>> SetsToMake(const std::vector<SetProposal>& by_rank, const RankLists& there) {
  SMDDP_RETURN_IF_ERROR(CheckSameKind(by_rank));
  RankLists known = there;
  int number = 0;
  for (const SetProposal& proposal : by_rank) number = std::max(number, proposal.next_number);
  std::vector<NewSet> sets;
  for (size_t position = 0; position < by_rank[0].entries.size(); ++position) {
    for (const std::vector<int>& ranks : ListsAt(by_rank, position)) {
      SMDDP_RETURN_IF_ERROR(CheckRanks(ranks, static_cast<int>(by_rank.size()), known));
      SMDDP_RETURN_IF_ERROR(CheckMembers(by_rank, position, ranks));
      known[number] = ranks;
      sets.push_back({number++, position, ranks});
    }
  }
  return sets;
}

Status CheckSameKind(const std::vector<SetProposal>& by_rank) {
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (SameKind(by_rank[0], by_rank[rank])) continue;
    return Status(Reason::kBadArgument, "Mismatched process sets: rank 0 has ", Describe(by_rank[0]), ", rank ", rank,
                  " has ", Describe(by_rank[rank]),
                  ". All ranks must make the same call, including ranks outside of the set.");
  }
  return Status::Ok();
}

}  // namespace smddp
