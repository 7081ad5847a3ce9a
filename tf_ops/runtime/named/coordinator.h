// Collects the ranks' announcements of a name and decides: start, or an error with the same message for all ranks.
// The data of small allreduces it sums itself. The coordinator of a name is chosen by the name's hash. Pure logic, no
// I/O.
//
// Threads: the engine's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compute/compute.h"
#include "runtime/control/join_rounds.h"
#include "runtime/control/messages.h"
#include "runtime/control/reminder.h"
#include "runtime/named/request_numbers.h"
#include "topology/topology.h"

namespace smddp {

// By the name, the first rank of one of 16 nodes at most: few, which put allreduces together (named/fusion_queue.h),
// and connections grow with the ranks, not with their square. For plans rank 0, which also numbers them; they are few,
// and compared once.
int CoordinatorOf(const Announcement& announcement, const Topology& topology);

class Coordinator {
 public:
  // All outlive it. It numbers `most_numbers` requests at most.
  Coordinator(const Topology& topology, const Compute& compute, const JoinRounds& join, size_t most_numbers)
      : topology_(topology), compute_(compute), join_(join), numbers_(most_numbers) {}

  // The whole request of an announcement that has come as a number. False: there is no such number.
  bool Complete(Announcement* announcement) const { return numbers_.Complete(announcement); }

  // Returns the verdict once the last rank has announced; `now_ns` starts the clock of the stall watch.
  std::optional<Verdict> Add(int rank, Announcement announcement, int64_t now_ns, bool given_up = false);
  // A rank has joined: verdicts on the names that waited only for it.
  std::vector<Verdict> RankJoined();

  // Names that are given up, as errors for the ranks that have announced them; the coordinator forgets them.
  struct Expired {
    Verdict verdict;
    std::vector<int> announced;
  };
  // A rank has given up the step that holds its request of that name. Returns the answer for that rank, if there is
  // no verdict yet. The other ranks get an error when they announce: their data would be reduced with those of a
  // failed step.
  std::optional<Verdict> GiveUp(int rank, const std::string& name);
  // Plans of that key, when every rank waits for one, they differ, and no rank will use another one before.
  std::vector<Expired> Disagreeing(const std::string& plan_key);
  // The keys of the plans that wait.
  std::set<std::string> PlanKeys() const;
  // The plan of that number is not used by any rank any more.
  void FreePlanNumber(uint32_t number) { plan_numbers_.erase(number); }
  size_t plan_numbers() const { return plan_numbers_.size(); }

  // The next two skip plans, which the plan table reports. The missing ranks of names that wait longer than
  // `seconds`; `due_only`: only of names that Stalled would report now.
  std::set<int> Missing(int64_t now_ns, double seconds, bool due_only) const;
  // Names that wait longer than `seconds` and are due by their Reminder: sentences that name the missing ranks.
  // `at_start`: only of broadcasts and allgathers, and each once.
  std::vector<std::string> Stalled(int64_t now_ns, double seconds, bool at_start = false);
  // Names that wait longer than `seconds`. `about` adds a description of the missing ranks.
  using About = std::function<std::string(const std::set<int>& missing)>;
  std::vector<Expired> Expire(int64_t now_ns, double seconds, const About& about);
  // The same for everything that waits for `rank`, which has left.
  std::vector<Expired> ExpireWaitingFor(int rank, const std::string& who);

 private:
  struct Entry {
    std::map<int, Announcement> by_rank;
    uint32_t round = 0;  // of hvd.join
    int64_t since_ns = 0;
    Reminder reminder;
    std::set<int> given_up;  // ranks that have given it up
    // That of the lowest rank.
    const Announcement& first() const { return by_rank.begin()->second; }
    bool is_waited_for() const { return given_up.size() < by_rank.size(); }
    bool is_plan() const { return first().kind == RequestKind::kPlan; }
  };
  // Has everything that `entry` needs of `rank` arrived? A plan outlives the round in which it was announced.
  bool Has(const Entry& entry, int rank) const {
    return entry.by_rank.count(rank) != 0 ||
           (OutlivesRounds(entry.first().kind) ? join_.has_joined(rank) : join_.has_joined(rank, entry.round));
  }
  bool complete(const Entry& entry) const;
  std::set<int> MissingIn(const Entry& entry) const;
  Verdict VerdictOn(const std::string& name, const Entry& entry);
  std::string DescribeWaiting(const std::string& name, const Entry& entry, int64_t now_ns) const;
  Entry& EntryFor(const std::string& name, int rank, uint32_t round, int64_t now_ns);

  Status Check(const std::map<int, Announcement>& by_rank) const;
  // Fills in a verdict of ranks that agree.
  void Complete(const std::map<int, Announcement>& by_rank, Verdict* verdict) const;
  uint32_t NextOperation(RequestKind kind);
  uint32_t NextPlanNumber();
  // Removes the entries that `doomed` selects; returns them as errors with the message of `why`.
  template <class Doomed, class Why>
  std::vector<Expired> ExpelIf(Doomed doomed, Why why);

  const Topology& topology_;
  const Compute& compute_;
  const JoinRounds& join_;
  // By name, the oldest of the earliest round first: a rank's second announcement of a name belongs to the second
  // entry.
  std::map<std::string, std::deque<Entry>> waiting_;
  uint32_t count_ = 0;
  std::set<uint32_t> plan_numbers_;  // in use
  GivenNumbers numbers_;
};

// OK, or the first disagreement between the announcements of all ranks, by the rank number that users know
// (kTensorsDiffer, kDisagreement), or the error of a request that no rank can execute (kBadArgument).
Status Validate(const std::map<int, Announcement>& by_rank);
// OK, or why the ranks that have joined, by the same numbers, cannot take part in it (kDisagreement).
Status PossibleWithJoined(const Announcement& request, const std::vector<int>& joined);

}  // namespace smddp
