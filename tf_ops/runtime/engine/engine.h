// The engine of one session: a thread that makes the session's MPI calls, steps its tasks and calls its components.
// Start-up, and adding or removing process sets, call MPI on the caller's thread (session_manager.h).
//
// The features of a session are in its components (control/component.h), its messages in the router
// (message_router.h). The engine has the loop, the inbox, the running tasks, the detection of lost ranks and the end of
// the session.
//
// Threads:   Submit, Stop and the counters from any; the rest on the engine thread, or before Start.
// Ownership: components outlive the engine thread: Stop comes before their destructors.
// Errors:    an error of one request is reported to that request. An error that leaves the ranks in different states
//            (a peer left in the middle of an operation, a transport failed) ends the session: every request, here
//            and on the other ranks, current and future, gets the same error.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/sync/queue.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/control/component.h"
#include "runtime/control/running_tasks.h"
#include "runtime/engine/loop_pace.h"
#include "runtime/engine/message_router.h"
#include "runtime/health/departures.h"
#include "runtime/health/heartbeat.h"

namespace smddp {

class Engine final : public ControlBus {
 public:
  // Called on the engine thread with the reason why the session failed.
  using FailureCallback = std::function<void(const Status&)>;
  // `parts` and `tasks` outlive it.
  Engine(FabricParts& parts, RunningTasks& tasks, double heartbeat_timeout_s, FailureCallback on_failure);
  ~Engine() override { Stop(); }

  // The components are called in the order in which they are added. `types`: of the messages that it receives.
  void Add(Component* component, const std::vector<ControlType>& types = {},
           MessageRouter::Delivery delivery = MessageRouter::Delivery::kUntilFailure) {
    components_.push_back(component);
    for (const ControlType type : types) router_.Add(type, component, delivery);
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
  void Post(int to, std::string message) override { router_.Post(to, std::move(message)); }
  void Run(RunningTask task) override;
  int64_t OldestNs() const override;
  int64_t last_worked_ns() const override { return pace_.last_worked_ns(); }
  const LoopPace& pace() const { return pace_; }
  const MessageRouter& router() const { return router_; }

 private:
  void Loop();
  bool expecting() const;
  void Tick(int64_t now_ns);
  void LookAtPeers(int64_t now_ns);
  // The session fails with an error of the transport, or, when MPI detects a death first, one that names the lost
  // ranks.
  void FailTransport(const Status& error);
  std::string UnderWay() const;
  void End(const Status& why, bool tell_others) override;
  void Leave();
  // Until all ranks have ended their sessions, or this one has failed. MPI_Finalize waits for all ranks as well, but
  // reads no messages and has no deadline; here a rank that is lost in the meantime is detected.
  void AwaitDepartures();

  FabricParts& parts_;
  RunningTasks& tasks_;
  const FailureCallback on_failure_;
  Trace trace_;
  WorkQueue inbox_;
  std::thread thread_;
  enum class Order { kRun, kStop, kStopAtExit };
  std::atomic<Order> order_{Order::kRun};

  // Engine thread only, except for counters.
  LoopPace pace_;
  Departures departures_;
  Heartbeat heartbeat_;
  std::vector<Component*> components_;
  MessageRouter router_;
  Status failed_;
};

}  // namespace smddp
