// The engine: one thread that makes all MPI calls, steps all tasks and passes each message to its component.
//
// The features of a session are in its components (control/component.h). The engine has the loop, the inbox, the
// running tasks, the detection of lost ranks and the end of the session.
//
// Threads:   Submit, Stop and the counters from any; the rest on the engine thread, or before Start.
// Ownership: components outlive the engine thread: Stop comes before their destructors.
// Errors:    an error of one request is reported to that request. An error that leaves the ranks in different states
//            (a peer left in the middle of an operation, a transport failed) ends the session: every request, here
//            and on the other ranks, current and future, gets the same error.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/sync/queue.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/control/component.h"
#include "runtime/control/running_tasks.h"
#include "runtime/engine/departures.h"
#include "runtime/engine/goodbye_relay.h"
#include "runtime/engine/loop_pace.h"
#include "runtime/engine/outbox.h"
#include "runtime/health/heartbeat.h"

namespace smddp {

class Engine final : public ControlBus {
 public:
  // Called on the engine thread with the reason why the session failed.
  using FailureCallback = std::function<void(const Status&)>;
  // `parts` and `tasks` outlive it.
  Engine(FabricParts& parts, RunningTasks& tasks, double heartbeat_timeout_s, FailureCallback on_failure);
  ~Engine() override { Stop(); }

  // When a component receives its messages: until the session has failed, or always.
  enum class Delivery { kUntilFailure, kAlways };
  // The components are called in the order in which they are added.
  void Add(Component* component, const std::vector<ControlType>& types = {},
           Delivery delivery = Delivery::kUntilFailure) {
    components_.push_back(component);
    for (const ControlType type : types) readers_[type] = {component, delivery};
  }
  void Start();
  // Ends what is under way with an error, notifies the other ranks, joins the thread. May be called twice. `at_exit`:
  // also waits until the other ranks have ended their sessions, or one of them is lost.
  void Stop(bool at_exit = false);
  // Runs `work` on the engine thread, in order; false after Stop.
  bool Submit(std::function<void()> work);

  const Topology& topology() const override { return parts_.fabric().topology; }
  Trace& trace() override { return trace_; }
  const Status& failure() const override { return failed_; }
  void Post(int to, std::string message) override;
  void Run(RunningTask task) override;
  void Fail(const Status& why) override { End(why, /*tell_others=*/true); }
  void FailHere(const Status& why) override { End(why, /*tell_others=*/false); }

  int64_t OldestNs() const override;
  int64_t last_worked_ns() const override { return pace_.last_worked_ns(); }
  const LoopPace& pace() const { return pace_; }
  // Control messages sent so far, and their bytes.
  int64_t control_messages() const { return control_messages_.load(std::memory_order_relaxed); }
  int64_t control_bytes() const { return control_bytes_.load(std::memory_order_relaxed); }
  // A rank whose session has ended with its program, such as the last one that has; -1: none has.
  int ended_rank() const { return ended_rank_.load(std::memory_order_relaxed); }

 private:
  void Loop();
  bool DrainInbox();
  // True when there were messages; `*worked` when at least one of them was not a sign of life.
  bool ReadControl(bool* worked);
  // Sends what was posted since the last call.
  void SendControl();
  Status SendNow(int to, std::string message);
  Status Deliver(const Message& message);
  Status OnGoodbye(const Message& message);
  Status OnDeparted(const Message& message);
  void Depart(int rank, const Goodbye& goodbye);
  // Does any component answer with yes?
  bool Any(bool (Component::*question)() const) const {
    return std::any_of(components_.begin(), components_.end(),
                       [=](const Component* each) { return (each->*question)(); });
  }
  bool expecting() const { return !tasks_.empty() || Any(&Component::expecting) || parts_.transport().busy(); }
  void Tick(int64_t now_ns);
  void LookAtPeers(int64_t now_ns);
  // The session fails with an error of the transport, or, when MPI detects a death first, one that names the lost
  // ranks.
  void FailTransport(const Status& error);
  std::string UnderWay() const;
  void End(const Status& why, bool tell_others);
  // Also to ranks that have left and still read; sends it at once.
  void PostToReaders(const std::vector<int>& ranks, const std::string& message);

  void Leave();
  void SayGoodbye(const Goodbye& goodbye);

  FabricParts& parts_;
  RunningTasks& tasks_;
  const FailureCallback on_failure_;
  Trace trace_;
  InboxQueue<std::function<void()>> inbox_;
  std::thread thread_;
  enum class Order { kRun, kStop, kStopAtExit };
  std::atomic<Order> order_{Order::kRun};
  std::atomic<int> ended_rank_{-1};

  // Engine thread only, except for its counters.
  LoopPace pace_;
  Heartbeat heartbeat_;
  Departures departures_;
  GoodbyeRelay relay_;
  Outbox outbox_;
  std::set<int> posted_to_;  // ranks of other nodes that this one has sent control messages to
  std::vector<Component*> components_;
  struct Reader {
    Component* component = nullptr;
    Delivery delivery = Delivery::kAlways;
  };
  std::map<ControlType, Reader> readers_;  // of the types that the engine does not handle itself
  Status failed_;
  bool leaving_ = false;
  std::atomic<int64_t> control_messages_{0}, control_bytes_{0};
};

}  // namespace smddp
