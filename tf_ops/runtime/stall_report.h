// Where the ranks are that others wait for. Asked when something has waited for too long; told by their engines, which
// answer whatever their programs do.
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

#include "runtime/announcement.h"
#include "topology/topology.h"

namespace smddp {

// What a rank waits for, as far as its engine sees.
enum class WaitsFor : uint8_t {
  kNothing,  // its program goes on: it is in no collective, or computes the rest of a step
  kData,     // of collectives that have begun here
  kCall,     // that some rank makes the call that this one has made
};

struct Whereabouts {
  std::string sentence;  // "Rank 2 (host node1) waits in ..."
  bool in_task = false;  // it moves data, or waits for others to
  WaitsFor waits_for = WaitsFor::kNothing;
  int64_t still_ns = 0;  // since when nothing has moved there, and nothing was asked for
  StepCounts steps;      // of plans
  std::string stacks;    // of its Python threads, or ""
};

class StallReport {
 public:
  using Post = std::function<void(int to, std::string message)>;
  using Here = std::function<Whereabouts()>;
  StallReport(const Topology& topology, Post post, Here here)
      : topology_(topology), post_(std::move(post)), here_(std::move(here)) {}

  // Asks those of `ranks` that have not answered lately. True: all have, or had the time to.
  bool Ask(const std::set<int>& ranks, int64_t now_ns);
  // False: it cannot be read.
  bool OnMessage(int from, std::string_view message, int64_t now_ns);

  // What each of `ranks` said, or that it is silent; the first few. `mine`: how far this rank is in its plans, to say
  // who is behind. With the stacks of those that sent them, or in plain sentences only.
  std::vector<std::string> Lines(const std::set<int>& ranks, const StepCounts& mine, bool with_stacks) const;
  // The ranks for which others may be waiting: all but those that are inside a collective themselves.
  std::set<int> Suspects(const std::set<int>& ranks) const;
  // All ranks of the session said that for `still_ns` they have waited in collectives, and nothing has moved.
  bool AllWait(int64_t still_ns) const;
  // All ranks of the session said that for `still_ns` they have waited, each for a call that another has not made. What
  // no engine sees is another thread of a program that is on its way to such a call.
  bool Deadlocked(int64_t still_ns) const;

 private:
  struct Asked {
    int64_t asked_ns = 0, answered_ns = 0;
    int64_t silent_since_ns = 0;  // the first time that it was asked since it answered
    Whereabouts answer;
    bool silent() const { return answered_ns < asked_ns; }
  };
  std::string Line(int rank, const Asked& asked, const StepCounts& mine, bool with_stacks) const;

  const Topology& topology_;
  const Post post_;
  const Here here_;
  std::map<int, Asked> asked_;
};

// "Rank 2 (host node1)"
std::string NamedWithHost(const Topology& topology, int rank);

}  // namespace smddp
