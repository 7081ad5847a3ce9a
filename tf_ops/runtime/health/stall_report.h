// What the ranks that others wait for are doing. They are asked when an operation has waited for too long. Their
// engines answer, whatever their programs do.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/messages.h"
#include "topology/topology.h"

namespace smddp {

// What a rank waits for, as far as its engine knows.
enum class WaitsFor : uint8_t {
  kNothing,  // its program continues: it is in no collective, or computes the rest of a step
  kData,     // of collectives that have begun here
  kCall,     // for some rank to make the call that this one has made
};

struct RankStatus {
  bool asks = false;     // a question: the rest is empty
  std::string sentence;  // "Rank 2 (host node1) waits in ..."
  bool in_task = false;  // it moves data, or waits for the data of others
  WaitsFor waits_for = WaitsFor::kNothing;
  int64_t still_ns = 0;  // for how long nothing has moved there, and nothing was requested
  StepCounts steps;      // of plans

  static constexpr ControlType kType = ControlType::kStall;
  SMDDP_FIELDS(asks, sentence, in_task, waits_for, still_ns, steps);
  bool IsWellFormed() const { return waits_for <= WaitsFor::kCall; }
};

class StallReport {
 public:
  using LocalStatus = std::function<RankStatus()>;
  // The bus outlives it. `local_status` returns what this rank is doing.
  StallReport(ControlBus& bus, LocalStatus local_status)
      : bus_(bus), topology_(bus.topology()), local_status_(std::move(local_status)), asked_(bus.topology().size()) {}

  // Asks the ranks of the session that have not answered recently. True: all have answered, or their time is up.
  bool AskAll(int64_t now_ns);
  // False: it cannot be decoded.
  bool OnMessage(int from, std::string_view message, int64_t now_ns);

  // What each of `ranks` answered, or that it is silent; limited to the first few. `mine`: the steps of this rank, to
  // report which ranks are behind.
  std::vector<std::string> Lines(const std::set<int>& ranks, const StepCounts& mine) const;
  // The ranks for which others may be waiting: all except those that are inside a collective themselves.
  std::set<int> Suspects(const std::set<int>& ranks) const;
  // All ranks of the session have reported that for `still_ns` they have waited in collectives, and nothing has
  // moved.
  bool AllWait(int64_t still_ns) const;
  // All ranks of the session have reported that for `still_ns` they have waited, each for a call that another one has
  // not made. An engine cannot see whether another thread of a program is about to make such a call.
  bool Deadlocked(int64_t still_ns) const;

 private:
  struct Asked {
    int64_t asked_ns = 0, answered_ns = 0;
    int64_t silent_since_ns = 0;  // when it was first asked after its last answer
    RankStatus answer;
    bool known() const { return asked_ns != 0 || answered_ns != 0; }
    bool silent() const { return answered_ns < asked_ns; }
  };
  std::string Line(int rank, const Asked& asked, const StepCounts& mine) const;

  ControlBus& bus_;
  const Topology& topology_;
  const LocalStatus local_status_;
  std::vector<Asked> asked_;  // by rank
};

}  // namespace smddp
