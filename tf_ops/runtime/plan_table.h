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
#include <set>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/fabric.h"
#include "collectives/stage_times.h"
#include "compute/fused_view.h"
#include "core/env.h"
#include "fusion/plan.h"
#include "runtime/announcement.h"
#include "runtime/plan_layout.h"
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

  // A plan that the ranks have yet to agree on, under `name`; its buckets wait. An error when it cannot be numbered.
  Status Add(int id, const std::string& name, const PlanSpec& spec);
  bool knows(int id) const { return plans_.count(id) != 0; }
  // The number that all ranks use for it; before Decide.
  void SetNumber(int id, int number) { plans_.at(id).number = number; }
  // The ranks' verdict on it.
  void Decide(int id, const Status& verdict);
  // Some rank has a GPU, on which the tensors of the plan may lie; before Decide (plan_devices.cc).
  void SetDevicesPossible(int id);
  // The cards of all ranks for one of the plans; false: the verdict is on something else.
  Result<bool> OnCards(const Verdict& verdict);
  // Begins what waited for the way between GPUs, when it is open.
  Status StepDevices();
  // Rank 0 has spoken. Not OK: that cannot be the order of any plan here.
  Status Adopt(const PlanOrder& order);
  // A tensor is ready. Not OK: it is not what the plan says, and the bucket can never complete on any rank.
  Status Arrive(int id, int index, const TensorRef& tensor, DoneCallback done);
  void FailAll(const Status& why);

  // hvd.join (plan_join.cc). How many reductions of the plans' tensors have begun here; of one that has not, nothing.
  StepCounts Steps() const;
  int64_t StepsOf(int id) const;
  const std::string& NameOfPlan(int id) const { return plans_.at(id).name; }
  // A plan of the other ranks, agreed on while this one had joined. Of no number here until somebody claims it.
  void AddForeign(const std::string& name, const PlanSpec& spec, std::vector<std::string> facts, int number,
                  bool devices_possible);
  bool Claim(int id, const PlanSpec& spec);
  // Begins, with what `lend` gives for each tensor, the reductions up to number `steps` that have not begun here.
  // False: there is no such plan; an error: no rank can be so far. When `lend` gives no callback the tensor is left
  // out.
  using Lender = std::function<Arrival(const TensorSpec&)>;
  Result<bool> BringZeros(const std::string& name, int64_t steps, const Lender& lend);
  // Tensors that came and whose callbacks have not been called.
  int64_t unfinished() const { return unfinished_; }

  bool waiting() const { return waiting_tensors_ > 0; }
  // Some gradients of a step have come and others not: the program still computes.
  bool InPart() const;
  // When the oldest tensor that waits came; INT64_MAX when there is none.
  int64_t OldestNs() const;
  int64_t buckets_done() const { return buckets_done_; }  // any thread
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
    int index = 0;
    int64_t number = 0;
    Arrival arrival;
    int64_t since_ns = 0;
  };
  // What its tensors on GPUs go through: not known, asked, agreed on and not open yet; or known.
  enum class Way { kUnknown, kAsked, kOpening, kHost, kDevice };
  struct Plan {
    Way way = Way::kHost;
    std::string name;  // the ranks match by it
    PlanSpec spec;
    std::vector<std::string> facts;         // of a foreign one: DescribePlan there
    std::deque<Epoch> epochs;               // those that are not over; the last one that was told is never missing
    std::vector<int64_t> came;              // how often, by tensor
    int64_t steps = 0;                      // the most of them
    std::vector<int> first_step;            // the tensors in the order of their first arrival
    std::vector<Held> held;                 // in the order of arrival
    std::set<int> busy;                     // operations under way
    int listed_buckets = 0;                 // of epoch 0
    int number = -1;                        // on the wire
    bool decided = false, ordered = false;  // has the verdict, the order come?
    Reminder held_reminder;
    Status verdict;
    std::vector<int> order;            // rank 0: what it told
    std::unique_ptr<PlanTuner> tuner;  // rank 0, while it tunes
  };
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  FusionLimits LimitsFor(const PlanSpec& spec) const;
  Status CheckArrival(int id, int index, const TensorRef& tensor) const;
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
  void Put(Plan* plan, int index, int64_t number, Arrival arrival, int64_t since_ns);
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
  std::unique_ptr<TuneLog> tune_log_;  // rank 0, once a plan is tuned
  std::map<int, Plan> plans_;          // foreign ones below 0
  int last_foreign_ = 0;
  int64_t waiting_tensors_ = 0, unfinished_ = 0;
  std::atomic<int64_t> buckets_done_{0};
};

}  // namespace smddp
