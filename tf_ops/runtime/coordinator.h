// Collects what the ranks announce under one name and decides: go, or an error in the same words for everybody. What
// small allreduces bring it sums itself. No rank is special: a name's coordinator is the rank that the name's hash
// picks. Pure logic, no I/O.
//
// Threads: the engine's.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compute/compute.h"
#include "runtime/announcement.h"
#include "topology/topology.h"

namespace smddp {

// Rank 0 for plans, which it also numbers; they are few, and compared once.
int CoordinatorOf(const Announcement& announcement, int size);

class Coordinator {
 public:
  // Both outlive it.
  Coordinator(const Topology& topology, const Compute& compute) : topology_(topology), compute_(compute) {}

  // The verdict once the last rank has announced; `now_ns` starts the clock of the stall watch.
  std::optional<Verdict> Add(int rank, Announcement announcement, int64_t now_ns);

  // A plan that nobody uses yet may wait for ever (one rank traced more than the others): the next two leave plans out.
  // Names that wait longer than `seconds` and for which this was not asked before: sentences naming who is missing.
  std::vector<std::string> Stalled(int64_t now_ns, double seconds);
  // Names that wait longer than `seconds`, as errors for the ranks that have announced; they are forgotten here.
  struct Expired {
    Verdict verdict;
    std::vector<int> announced;
  };
  std::vector<Expired> Expire(int64_t now_ns, double seconds);
  // The same for everything that waits for `rank`, which has left.
  std::vector<Expired> ExpireWaitingFor(int rank, const std::string& who);

 private:
  struct Entry {
    std::map<int, Announcement> by_rank;
    int64_t since_ns = 0;
    bool reported = false;
    bool is_plan() const { return by_rank.begin()->second.kind == RequestKind::kPlan; }
  };
  std::string DescribeWaiting(const std::string& name, const Entry& entry, int64_t now_ns) const;
  Entry& EntryFor(const std::string& name, int rank, int64_t now_ns);

  Status Check(const std::map<int, Announcement>& by_rank) const;
  // What the verdict of ranks that agree carries.
  void Complete(const std::map<int, Announcement>& by_rank, Verdict* verdict) const;
  uint32_t NextOperation(RequestKind kind);
  // Takes out the entries that `doomed` picks, as errors in the words of `why`.
  template <class Doomed, class Why>
  std::vector<Expired> ExpelIf(Doomed doomed, Why why);

  const Topology& topology_;
  const Compute& compute_;
  // By name, oldest first: a rank's second announcement of a name belongs to the second entry.
  std::map<std::string, std::deque<Entry>> waiting_;
  uint32_t count_ = 0, plan_count_ = 0;
};

// OK, or the first disagreement between the announcements of all ranks, by the number that users know each by
// (FailedPrecondition), or a request that no rank could fulfil (InvalidArgument).
Status Validate(const std::map<int, Announcement>& by_rank);

}  // namespace smddp
