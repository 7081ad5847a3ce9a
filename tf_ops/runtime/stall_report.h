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

struct Whereabouts {
  std::string sentence;  // "Rank 2 (host node1) waits in ..."
  bool in_task = false;  // it moves data, or waits for others to
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
