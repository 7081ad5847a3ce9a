// The engine: one thread that makes every MPI call, steps every collective and answers every caller.
//
// Threads:   Submit from any; everything private runs on the engine thread. Stop from the owner.
// Errors:    what concerns one named request is that request's error. What leaves the ranks in different states (a
//            peer left half-way, a transport failed) ends the session: every request, here and on the other ranks,
//            now and later, gets the same error.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/env.h"
#include "core/queue.h"
#include "runtime/backoff.h"
#include "runtime/coordinator.h"
#include "runtime/device_staging.h"
#include "runtime/fabric_parts.h"
#include "runtime/heartbeat.h"
#include "runtime/join_table.h"
#include "runtime/last_words.h"
#include "runtime/named_table.h"
#include "runtime/plan_registry.h"
#include "runtime/plan_retirement.h"
#include "runtime/plan_table.h"
#include "runtime/session_devices.h"
#include "runtime/stall_report.h"
#include "runtime/timeline_group.h"
#include "runtime/trace.h"
#include "runtime/verify.h"
#include "runtime/zero_memory.h"

namespace smddp {

// Makes this rank's part in an allreduce that others asked for: zeros. What the task refers to goes into `*keep`.
using ZeroAllreduce =
    std::function<Result<TaskPtr>(const Verdict& verdict, ZeroMemory& zeros, std::shared_ptr<void>* keep)>;

class Engine {
 public:
  // `plans` outlives it. `on_failure` is told, on the engine thread, why the session failed.
  using FailureCallback = std::function<void(const Status&)>;
  Engine(std::unique_ptr<FabricParts> parts, const Env& env, const PlanRegistry& plans, ZeroAllreduce zero_allreduce,
         FailureCallback on_failure = nullptr);
  ~Engine() { Stop(); }

  void Start();
  // Ends what is under way with an error, tells the other ranks, joins the thread. May be called twice. `at_exit`: and
  // waits until the other ranks have ended their sessions, or one of them is lost.
  void Stop(bool at_exit = false);

  // Runs `work` on the engine thread, in order; false after Stop.
  bool Submit(std::function<void()> work);

  // --- engine thread only, from submitted work ---
  void SubmitNamed(NamedRequest request);
  void ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);
  void Cancel(const std::string& name);
  void CancelPlanned(const PlannedTensor& where);
  void Join(int* last, DoneCallback done);
  Status StartTimeline(const std::string& path, bool mark_cycles);
  TimelineGroup& timeline() { return timeline_; }
  DeviceStaging& staging() { return staging_; }
  LastWords& last_words() { return last_words_; }
  const LastWords& last_words() const { return last_words_; }
  void Fail(const Status& why, bool tell_others);

  const Fabric& fabric() const { return parts_->fabric(); }
  const Topology& topology() const { return fabric().topology; }
  Trace& trace() { return trace_; }
  Verifier& verifier() { return verifier_; }
  SessionStats Stats() const;
  // Any thread. Grows as long as the engine is not stuck in a call.
  int64_t turns() const { return turns_.load(std::memory_order_relaxed); }

 private:
  void Loop();
  bool MayEvacuate(int64_t now_ns);
  bool DrainInbox();
  // True when there were messages; `*moved` when some of them were more than signs of life.
  bool ReadControl(bool* moved);
  Status OnControl(const Message& message);
  void OnAnnouncement(int from, Announcement announcement);
  void OnVerdict(const Verdict& verdict);
  void OnGoodbye(int from, const Goodbye& goodbye);
  void AskForCards(const std::string& name, const Result<std::string>& card);
  void Announce(Announcement announcement);
  // Announces the plan of `where`, unless it is known already.
  void AddPlan(const PlannedTensor& where);
  void SendVerdict(const Verdict& verdict, const std::vector<int>& to);
  void Post(int to, std::string message);
  void PostToOthers(const std::string& message);
  // Also to those who have left and listen.
  void PostLastWords(const std::string& message);
  void Run(RunningTask task);
  bool StepTasks();
  void StepDevices();
  void Hold(std::function<void()> work);
  void ReleaseHeld();
  bool Drained() const;
  void OnJoinNotice(int from, const JoinNotice& notice);
  void TellStepsBeyond(const StepCounts& known, int to);
  void TellStep(const PlannedTensor& where);
  void BringZeros(const StepCounts& counts);
  PlanTable::Lender Zeros();
  void OnVerdictOfOthers(const Verdict& verdict);
  void AddForeignPlan(const Verdict& verdict);
  void GiveUpStep(const std::string& plan);
  void OnStepGivenUp(int from, const StepGivenUp& given_up);
  void FillGivenUp();
  void GiveUpBrokenSteps(int64_t now_ns);
  void GiveUpRequests(int64_t now_ns);
  void OnRequestGivenUp(int from, const RequestGivenUp& given_up);
  void OnJoinOver(const JoinOver& over);
  void StepJoin();
  void WatchPeers();
  std::string DescribeWaiting() const;
  Status OfTransport(const Status& error) const;
  void WatchStalls();
  bool IsStalled(int64_t now_ns) const;
  void WarnOfStalls(int64_t now_ns);
  std::vector<std::string> OwnStalls(int64_t now_ns);
  std::string Deadlock() const;
  void EndStalls(int64_t now_ns);
  std::set<int> OtherRanks() const;
  Whereabouts Here();
  WaitsFor WaitingFor() const;
  void WatchDepartures();
  void WatchCancelled();
  void Leave();
  void AwaitDepartures();
  void AwaitReaders();
  void ForgetDeparted();
  bool expecting() const {
    return !tasks_.empty() || named_.waiting() || join_.waiting() || devices_.opening() || parts_->world().busy();
  }

  const std::unique_ptr<FabricParts> parts_;
  const Env env_;
  const PlanRegistry& registry_;
  const ZeroAllreduce zero_allreduce_;
  const FailureCallback on_failure_;
  Trace trace_;
  InboxQueue<std::function<void()>> inbox_;
  std::thread thread_;
  std::atomic<bool> stopping_{false}, at_exit_{false};

  // Engine thread only.
  Backoff backoff_;
  Heartbeat heartbeat_;
  Verifier verifier_;
  JoinTable join_;
  Coordinator coordinator_;
  NamedTable named_;
  SessionDevices devices_;
  DeviceStaging staging_{[this](RunningTask task) { Run(std::move(task)); }};
  PlanTable plans_;
  PlanRetirement retirement_;
  TimelineGroup timeline_;
  LastWords last_words_;
  StallReport stalls_;
  std::list<RunningTask> tasks_;
  Status failed_;
  std::map<int, int64_t> departed_;  // rank -> when its goodbye came
  std::set<int> listening_;          // of these: who still reads
  struct Cancelled {
    std::string name;
    int64_t when_ns = 0;
    bool told = false;  // to its coordinator
  };
  std::vector<Cancelled> cancelled_;                       // requests whose step was cancelled
  std::vector<std::pair<PlannedTensor, int64_t>> broken_;  // the same of steps of plans that may lack tensors
  // Steps that this rank has given up: who does not know yet.
  std::map<std::pair<std::string, int64_t>, std::set<int>> given_up_;
  ZeroMemory zeros_{/*shared=*/!env_.verify};
  std::vector<std::function<void()>> held_;  // until the round of hvd.join is over
  StepCounts wanted_;                        // of plans whose verdict has not come
  int64_t own_named_ = 0;                    // requests of this rank without an answer, but for plans
  int64_t lent_ = 0, zero_tasks_ = 0;        // tensors of plans, named requests: zeros under way
  int idle_rounds_ = 0;
  std::string last_done_;  // what ended last, and when; at first when the session began
  int64_t last_done_ns_ = NowNs();
  bool leaving_ = false;
  int64_t last_moved_ns_ = 0, last_watch_ns_ = 0, last_look_ns_ = 0;
  int64_t last_worked_ns_ = 0;  // the same, without what the engines say of themselves (BelongsToWork)

  std::atomic<int64_t> named_done_{0}, wakeups_{0}, turns_{0}, node_bytes_{0}, rail_bytes_{0};
};

}  // namespace smddp
