// An exception that nobody caught on one rank ends the job, and its traceback is what is read last.
//
// The rank that raised tells the others. Each fails its session, prints one line and says so (kHeard). Then the first
// one prints its traceback and says so too (kShown): until then the others stay, because a launcher ends the job when
// the first process of it has gone.
//
// Threads: Raise, Shown and OnMessage on the engine's; the rest from any.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "core/status.h"
#include "topology/topology.h"

namespace smddp {

class LastWords {
 public:
  using Post = std::function<void(int to, std::string message)>;
  using Fail = std::function<void(const Status& why)>;
  LastWords(const Topology& topology, Post post, Fail fail)
      : topology_(topology), post_(std::move(post)), fail_(std::move(fail)) {}

  // This rank raised: "ValueError: no such file".
  void Raise(const std::string& exception);
  void Shown();
  // False: it cannot be read.
  bool OnMessage(int from, std::string_view message);

  // The ranks that have printed that this one raised.
  int heard() const { return heard_; }
  // What another rank has said of its exception; "" when none has.
  std::string raised_elsewhere() const;
  // That rank has printed its traceback.
  bool shown_elsewhere() const { return shown_elsewhere_; }

 private:
  const Topology& topology_;
  const Post post_;
  const Fail fail_;
  bool raised_ = false;
  std::atomic<int> heard_{0};
  std::atomic<bool> shown_elsewhere_{false};
  mutable std::mutex mutex_;
  std::string raised_elsewhere_;
};

}  // namespace smddp
