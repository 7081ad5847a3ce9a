// What components send, noted instead of sent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "native/testing.h"
#include "runtime/control/component.h"

namespace smddp {

class NotedBus : public ControlBus {
 public:
  NotedBus(int rank, const std::vector<std::string>& hosts) : topology_(Value(Topology::Build(rank, hosts))) {}

  const Topology& topology() const override { return topology_; }
  Trace& trace() override { return trace_; }
  const Status& failure() const override { return failure_; }
  int64_t OldestNs() const override { return Component::kNever; }
  int64_t last_worked_ns() const override { return 0; }
  void Post(int to, std::string message) override { posted.emplace_back(to, std::move(message)); }
  void Run(RunningTask task) override { tasks.Add(std::move(task)); }
  // Takes the only message there is, which goes to `to`.
  template <class Sent>
  Sent Take(int to) {
    Sent sent;
    REQUIRE(posted.size() == 1);
    CHECK(posted[0].first == to);
    REQUIRE(Decode(posted[0].second, &sent));
    posted.clear();
    return sent;
  }

  std::vector<std::pair<int, std::string>> posted;
  RunningTasks tasks;
  bool told = false;  // the others, of a failure

 private:
  void End(const Status& why, bool tell_others) override {
    if (failure_.ok()) failure_ = why;
    told |= tell_others;
  }

  const Topology topology_;
  Trace trace_;
  Status failure_;
};

}  // namespace smddp
