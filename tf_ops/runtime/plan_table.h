// Planned matching: gradients are known by (plan, index), so a bucket starts the moment its last tensor is ready and
// no rank is asked.
//
// Epochs. The n-th reduction of a tensor belongs to the epoch that holds number n; each rank counts for itself, so
// ranks may be steps apart. An epoch has a layout: which tensors share a bucket, and how buckets are reduced. Epoch 0
// is the first reduction, in buckets of the listed order. Rank 0 notes in which order the tensors come to it in that
// step and tells everybody epoch 1, which has buckets of that order and, without autotune, no end. With autotune epochs
// last for a few steps, which rank 0 times, until it tells one without end (runtime/autotune.h).
//
// A tensor that comes before rank 0 has told its epoch is held. That ends: what rank 0 waits for belongs to earlier
// epochs, which need nothing of this one.
//
// Operation numbers, and so tags. Epoch 0 and 1 have their own. Epoch 2 and later ones have those of epoch 1, because
// rank 0 tells them only when all its reductions of earlier epochs are done: then all ranks have started these. A
// number is in use once at a time on each rank, so it is reused like that of one bucket from step to step.
//
// Threads: the engine's.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/fabric.h"
#include "collectives/stage_times.h"
#include "compute/fused_view.h"
#include "core/env.h"
#include "fusion/plan.h"
#include "runtime/announcement.h"
#include "runtime/plan_layout.h"
#include "runtime/plan_steps.h"
#include "runtime/plan_tuner.h"
#include "runtime/running_task.h"
#include "runtime/session.h"
#include "runtime/session_devices.h"
#include "runtime/trace.h"
#include "runtime/verify.h"

namespace smddp {

struct PlanOptions {
  int64_t bucket_bytes = kAutoBytes;
  bool observe_order = true;  // rank 0's counts; false: it tells everybody to keep the listed order
  bool autotune = false;      // rank 0's counts
  std::string autotune_log;
};

class PlanTable {
 public:
  // `tell_others` posts rank 0's order to all other ranks.
  using TellOthers = std::function<void(const PlanOrder&)>;
  // `ask_for_cards` announces this rank's card under a name, or fails the session when there is none.
  using AskForCards = std::function<void(const std::string& name, const Result<std::string>& card)>;
  PlanTable(const Fabric& fabric, PlanOptions options, TaskRunner run, TellOthers tell_others, Trace& trace,
            Verifier& verifier, SessionDevices& devices, AskForCards ask_for_cards)
      : fabric_(fabric),
        options_(options),
        run_(std::move(run)),
        tell_others_(std::move(tell_others)),
        trace_(trace),
        verifier_(verifier),
        devices_(devices),
        ask_(std::move(ask_for_cards)) {}

  // Is there a plan for `where`, and not one that the ranks refused in an earlier run?
  bool Knows(const PlannedTensor& where) const;
  // The tensors of `where` go to the plan of that name from now on. False: there is one already, of the other ranks
  // (AddForeign). Else it is made; the ranks have yet to agree on it, and its buckets wait.
  bool Add(const PlannedTensor& where, const std::string& name, const PlanSpec& spec);
  // Not OK: it has so many buckets that it cannot be numbered; there is no need to ask the other ranks.
  const Status& VerdictOn(const std::string& name) const { return plans_.at(name).verdict; }
  // The number that all ranks use for it; before Decide.
  void SetNumber(const std::string& name, int number) { plans_.at(name).number = number; }
  // The ranks' verdict on it.
  void Decide(const std::string& name, const Status& verdict);
  // Some rank has a GPU, on which the tensors of the plan may lie; before Decide (plan_devices.cc).
  void SetDevicesPossible(const std::string& name);
  // The cards of all ranks for one of the plans; false: the verdict is on something else.
  Result<bool> OnCards(const Verdict& verdict);
  // Begins what waited for the way between GPUs, when it is open.
  Status StepDevices();
  // Rank 0 has spoken. Not OK: that cannot be the order of any plan here.
  Status Adopt(const PlanOrder& order);
  // A tensor is ready. Not OK: it is not what the plan says, or two runs overlap: what belongs together is not known,
  // and the bucket can never complete on any rank.
  Status Arrive(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);
  void FailAll(const Status& why);

  // hvd.join (plan_join.cc). How many reductions of the plans' tensors have begun here; of one that has not, nothing.
  StepCounts Steps() const;
  int64_t StepsOf(const PlannedTensor& where) const;
  // The same of a plan that is known.
  int64_t StepsOf(const std::string& name) const { return plans_.at(name).steps.begun(); }
  // Of one that is known.
  const std::string& NameOfPlan(const PlannedTensor& where) const { return local_.at({where.plan, where.site})->name; }
  // A plan of the other ranks, agreed on while this one had joined. Not OK: it is under way here.
  Status AddForeign(const std::string& name, const PlanSpec& spec, int number, bool devices_possible);
  // Begins, with what `lend` gives for each tensor, the reductions up to number `steps` that have not begun here.
  // False: there is no such plan; an error: no rank can be so far. When `lend` gives no callback the tensor is left
  // out.
  using Lender = std::function<Arrival(const TensorSpec&)>;
  Result<bool> BringZeros(const std::string& name, int64_t steps, const Lender& lend);

  // Steps that are given up (plan_void.cc). Would the arrival of `where` show that the run before it was broken off,
  // and some tensors of its step never came?
  bool BreaksOff(const PlannedTensor& where) const;
  // Is `where` of the last step, of which some tensors have not come?
  bool LacksTensors(const PlannedTensor& where) const;
  // Has step `step` of that plan begun as the last one here, and some of its tensors have not come?
  bool LacksTensorsOf(const std::string& name, int64_t step) const;
  // Plans whose last run ended before all tensors came.
  std::vector<std::string> BrokenOff() const;
  // Step `step`, counted from 1, of the plan of that name: what ends from now on ends with `why`.
  void Void(const std::string& name, int64_t step, const Status& why);
  // Keeps the places of tensors that did not come in the last step of a plan; Fill puts zeros there.
  void KeepPlaces(const std::string& name);
  void Fill(const std::string& name, int64_t step, const Lender& lend);

  // Plans that nobody uses any more (runtime/plan_retirement.h). The number of the one that has not been used for
  // longest, and not since `before_ns`; -1: there is none.
  int LeastRecentlyUsed(int64_t before_ns) const;
  // Keeps what comes for a plan from now on, and says how many steps of it have begun. Nothing: something of it is
  // under way, or there is none of that number.
  std::optional<int64_t> Keep(int number);
  struct Kept {
    PlannedTensor where;
    TensorRef tensor;
    DoneCallback done;
  };
  // What was kept, to be handed over once more. `forget`: there is no such plan any more.
  std::vector<Kept> EndKeeping(int number, bool forget);

  // Tensors that came and whose callbacks have not been called.
  int64_t unfinished() const { return unfinished_; }

  bool waiting() const { return waiting_tensors_ > 0; }
  // Some gradients of a step have come and others not: the program still computes.
  bool InPart() const;
  // When the oldest tensor that waits came; INT64_MAX when there is none.
  int64_t OldestNs() const;
  int64_t buckets_done() const { return buckets_done_; }  // any thread
  int64_t known() const { return known_; }                // any thread
  // Will Stalled have something to say?
  bool IsStalled(int64_t now_ns, double seconds) const;
  // Buckets of which some tensors have waited longer than `seconds` for the others, each told by its Reminder.
  std::vector<std::string> Stalled(int64_t now_ns, double seconds);
  // One that has waited longer than `seconds`, in a sentence; "" when there is none.
  std::string StuckFor(int64_t now_ns, double seconds) const;

 private:
  // Reductions start ... end - 1 of every tensor.
  struct Epoch {
    PlanLayout layout;
    TuneSettings settings;
    int64_t start = 0, end = 0;
    int64_t left = 0;  // arrivals until it is over; below 0: it is without end
  };
  // Came before its epoch was told.
  struct Held {
    Arrival arrival;
    int64_t since_ns = 0;
  };
  // What its tensors on GPUs go through: not known, asked, agreed on and not open yet; or known.
  enum class Way { kUnknown, kAsked, kOpening, kHost, kDevice };
  struct Plan {
    Way way = Way::kHost;
    std::string name;  // the ranks match by it
    PlanSpec spec;
    std::deque<Epoch> epochs;                  // those that are not over; the last one that was told is never missing
    PlanSteps steps{0};                        // what has come
    std::vector<int> first_step;               // the tensors in the order of their first arrival
    std::vector<Held> held;                    // in the order of arrival
    std::set<int> busy;                        // operations under way
    std::map<int64_t, std::vector<int>> kept;  // by step, counted from 1: tensors that never came
    int listed_buckets = 0;                    // of epoch 0
    int number = -1;                           // on the wire
    uint64_t asked_by = 0;                     // the run that announced it
    int64_t open = 0;                          // arrivals without an answer, zeros among them
    int64_t last_use_ns = 0;                   // when it was used, or asked about
    bool keeping = false;
    std::vector<Kept> waiting;              // while keeping
    bool decided = false, ordered = false;  // has the verdict, the order come?
    Reminder held_reminder;
    Status verdict;
    std::vector<int> order;            // rank 0: what it told
    std::unique_ptr<PlanTuner> tuner;  // rank 0, while it tunes
  };
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  FusionLimits LimitsFor(const PlanSpec& spec) const;
  Plan* PlanOf(const PlannedTensor& where) const;
  Plan* Numbered(int number);
  static bool IsIdle(const Plan& plan);
  std::vector<Kept> TakeKept(Plan* plan);
  // Also in the place of one that was refused: nothing of that is under way.
  void Make(Plan* plan, const std::string& name, const PlanSpec& spec);
  static Status Overlaps(const Plan& plan, int index);
  static Status JoinedBefore(const Plan& plan, int index);
  Status CheckArrival(const PlannedTensor& where, const TensorRef& tensor) const;
  void Place(Plan* plan, Arrival arrival);
  void PlaceZeros(Plan* plan, int index, int64_t step, const Lender& lend);
  // Rank 0: tells epoch 1 as soon as it is known.
  void TryTellOrder(Plan* plan);
  // Rank 0: tells the next epoch when the last one is over.
  void TryTellNext(Plan* plan);
  void Tell(Plan* plan, PlanOrder told);
  TuneChoices ChoicesFor(const Plan& plan) const;
  FusionLimits LimitsOf(const Plan& plan, const TuneSettings& settings) const;
  bool Possible(const Plan& plan, const PlanOrder& told) const;
  void Apply(Plan* plan, const PlanOrder& told);
  void Begin(Plan* plan, const PlanOrder& told);
  void Put(Plan* plan, Arrival arrival, int64_t since_ns);
  static Epoch* EpochOf(Plan* plan, int64_t number);

  void TryStart(Plan* plan, Epoch* epoch, PlannedBucket* bucket);
  void TryStartAll(Plan* plan);
  bool KnowsWay(Plan* plan, const PlannedBucket& bucket);
  TaskPtr BeginBucket(const Plan& plan, const Epoch& epoch, const FusedCall& call,
                      const std::vector<Arrival>& arrivals);
  const AllreduceAlgorithm& RailFor(const Plan& plan, const Epoch& epoch, int64_t elements, DType wire) const;
  // The buckets of its last epoch, in the log.
  void LogAgreed(const Plan& plan) const;
  VerificationPtr Watched(const Plan& plan, const PlannedBucket& bucket, const std::vector<Arrival>& arrivals) const;
  void Finish(Plan* plan, Epoch* epoch, PlannedBucket* bucket, std::vector<Arrival> arrivals, const Status& status);
  static void Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status);
  void Count(Plan* plan, Epoch* epoch, PlannedBucket* bucket);
  void RecordTensors(const char* what, const Plan& plan, const PlannedBucket& bucket);
  void RecordDone(const Plan& plan, const PlannedBucket& bucket, const StageTimes* times);
  void FailWaiting(Plan* plan, const Status& why);
  static std::string DescribeMissing(const Plan& plan, const PlannedBucket& bucket, int64_t now_ns);
  std::string DescribeHeld(const Plan& plan, int64_t now_ns) const;

  const Fabric& fabric_;
  const PlanOptions options_;
  const TaskRunner run_;
  const TellOthers tell_others_;
  Trace& trace_;
  Verifier& verifier_;
  SessionDevices& devices_;
  const AskForCards ask_;
  std::unique_ptr<TuneLog> tune_log_;                      // rank 0, once a plan is tuned
  std::map<std::string, Plan> plans_;                      // by name
  std::map<std::pair<int, int>, Plan*> local_;             // by plan and site: those that this rank uses
  std::map<std::string, std::map<int64_t, Status>> void_;  // of plans that are not known here, by step
  int64_t waiting_tensors_ = 0, unfinished_ = 0;
  std::atomic<int64_t> buckets_done_{0}, known_{0};
};

}  // namespace smddp
