// The control messages of a session: everything ranks send one another except the data of collectives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/wire.h"
#include "runtime/api/session.h"

namespace smddp {

// Every control message begins with one of these.
enum class ControlType : uint8_t {
  kAnnouncement = 1,
  kVerdict,
  kGoodbye,
  kAbort,
  kPlanOrder,
  kJoinNotice,
  kJoinOver,
  kHeartbeat,
  kStepGivenUp,
  kRequestGivenUp,
  kPlanRetirement,
  kTimeline,
  kExceptionNotice,
  kStall,
  kBatch,
  kDeparted,
};

// Also asked of ranks that have joined, once per session, so the rounds of hvd.join do not apply. Rank 0 answers.
inline bool OutlivesRounds(RequestKind kind) { return kind == RequestKind::kPlan || kind == RequestKind::kDevices; }

constexpr int kRequestKinds = 8;

// "allreduce", ...; and in Horovod's capitals for the texts that scripts grep for.
const char* NameOf(RequestKind kind);
const char* CapitalNameOf(RequestKind kind);

// The limit of Announcement::data of a small reduction or allgather: all its tensors together, in the wire format.
// Above this size the coordinator's part of the work would be noticeable.
constexpr int64_t kMaxInlineBytes = 1024;
// The limit of Verdict::data of a small allgather.
constexpr int64_t kMaxGatheredBytes = 4096;
// Announcement::data of a plan.
constexpr char kHasDevices[] = "GPU";

// Of requests without a number (named/request_numbers.h).
constexpr uint32_t kUnnumbered = 0xffffffff;

// One rank's request under a name, to the name's coordinator.
struct Announcement : Collective {
  static constexpr ControlType kType = ControlType::kAnnouncement;
  std::vector<TensorSpec> tensors;
  std::vector<std::string> facts;  // kPlan: fusion/plan.h DescribePlan
  std::string plan_key;            // kPlan: with the site number, where there are several
  bool alone = true;               // kPlan: api/session.h PlannedTensor::alone
  // Of a small reduction or allgather: this rank's contribution (requests/inline_data.h). kPlan: kHasDevices where a
  // GPU is available. kDevices: this rank's description of its GPU.
  std::string data;
  bool duplicate = false;         // another request of that name was waiting on this rank
  uint32_t round = 0;             // the round of hvd.join in which it was made
  uint32_t number = kUnnumbered;  // sent instead of the request, which the coordinator knows

  // What is equal when the request is made again.
  template <class Self, class Fields>
  static void VisitRequest(Self& self, Fields& fields) {
    fields(self.kind, self.name, self.tensors, self.op, self.root, self.prescale, self.postscale, self.wire_dtype,
           self.even_split, self.splits, self.facts, self.plan_key, self.alone);
  }
  template <class Self, class Fields>
  static void Visit(Self& self, Fields& fields) {
    fields(self.number, self.data, self.duplicate, self.round);
    if (self.number == kUnnumbered) VisitRequest(self, fields);
  }
  // A number alone: GivenNumbers::Complete checks the rest.
  bool IsWellFormed() const { return number != kUnnumbered || IsPossible(); }
  bool IsPossible() const;
};

// How a verdict refers to a request: by its name, and once together with its number; afterwards by the number alone.
struct RequestRef {
  std::string name;
  uint32_t number = kUnnumbered;
  bool told = false;  // all ranks know the number, so the name is not sent

  template <class Self, class Fields>
  static void Visit(Self& self, Fields& fields) {
    fields(self.number, self.told);
    if (!self.told) fields(self.name);
  }
};

// The coordinator's answer, the same for every rank.
struct Verdict : RequestRef {
  static constexpr ControlType kType = ControlType::kVerdict;
  RequestKind kind = RequestKind::kBarrier;
  Status status;  // not OK: the ranks disagree
  uint32_t operation = 0;
  std::vector<int64_t> dim0_of_rank;  // kAllgather: for each tensor, the rows of every rank
  std::string data;  // of a small reduction or allgather: its result. kPlan: as in Announcement, for all ranks
  std::vector<std::string> devices;  // kDevices: what each rank has announced; "" for those that have joined
  std::vector<int> joined;           // ranks that have not made the request: they have joined, and contribute zeros
  Announcement request;              // the request, without data; sent where ranks have joined
  std::vector<RequestRef> fused;     // kAllreduce: those that are reduced together with it, in this order
  // Not sent:
  std::set<int> answered;   // ranks that have been answered already
  bool is_limited = false;  // named/fusion_queue.h limits how many such travel

  template <class Self, class Fields>
  static void Visit(Self& self, Fields& fields) {
    RequestRef::Visit(self, fields);
    fields(self.kind, self.status, self.operation, self.dim0_of_rank, self.data, self.joined, self.fused);
    if (self.kind == RequestKind::kDevices) fields(self.devices);
    if (!self.joined.empty()) fields(self.request);
  }
  bool IsWellFormed() const;
};

// From rank 0: the order in which the gradients of a plan are put into buckets from its second step on.
struct PlanOrder {
  static constexpr ControlType kType = ControlType::kPlanOrder;
  int32_t plan = 0;        // its number on the wire
  std::vector<int> order;  // empty: as listed

  SMDDP_FIELDS(plan, order);
  bool IsWellFormed() const { return plan >= 0; }
};

// By the name of a plan: the number of its steps that have begun.
using StepCounts = std::map<std::string, int64_t>;

inline int64_t StepsOf(const StepCounts& counts, const std::string& plan) {
  const auto at = counts.find(plan);
  return at == counts.end() ? 0 : at->second;
}

// hvd.join, from one rank to others.
struct JoinNotice {
  static constexpr ControlType kType = ControlType::kJoinNotice;
  uint32_t round = 0;    // the sender's
  bool joins = false;    // it has no more data
  bool drained = false;  // and none of its own requests is under way any more; for rank 0
  StepCounts steps;      // the sender's steps

  SMDDP_FIELDS(round, joins, drained, steps);
};

// From rank 0: all ranks have joined.
struct JoinOver {
  static constexpr ControlType kType = ControlType::kJoinOver;
  int32_t last = 0;
  StepCounts steps;  // the steps of the rank that is furthest ahead

  SMDDP_FIELDS(last, steps);
  bool IsWellFormed() const { return last >= 0; }
};

// A rank gave up a step of a plan, for all other ranks; and their acknowledgement.
struct StepGivenUp {
  static constexpr ControlType kType = ControlType::kStepGivenUp;
  std::string plan;  // its name
  int64_t step = 0;  // counted from 1
  bool known = false;

  SMDDP_FIELDS(plan, step, known);
  bool IsWellFormed() const { return step > 0; }
};

// A cancelled step is given up after this delay: ops that TensorFlow has started may still provide their tensors.
constexpr int64_t kSettleNs = 200 * 1000000LL;
// The error of a step that `rank`, by the number that users know, gave up.
Status GivenUpBy(int rank);

// A rank gave up the step that holds its request of that name, for the name's coordinator.
struct RequestGivenUp {
  static constexpr ControlType kType = ControlType::kRequestGivenUp;
  std::string name;
  bool missing = false;  // the sender has not announced it and will not
  uint32_t round = 0;    // of hvd.join, where it is missing

  // Stands for a missing request. Of which kind that is, is not known.
  Announcement InItsPlace() const {
    Announcement announcement;
    announcement.kind = RequestKind::kBarrier;
    announcement.name = name;
    announcement.round = round;
    return announcement;
  }

  SMDDP_FIELDS(name, missing, round);
};

// The sender's session has ended. `clean`: nothing was under way there. `listens`: it still reads messages
// until all ranks have left.
struct Goodbye {
  static constexpr ControlType kType = ControlType::kGoodbye;
  bool clean = false;
  bool listens = false;
  // Where not all ranks are told by the sender (health/departures.h): those of other nodes that are.
  std::vector<int> told;

  SMDDP_FIELDS(clean, listens, told);
};

// Ranks that have left, passed on by another rank.
struct Departed {
  static constexpr ControlType kType = ControlType::kDeparted;
  std::vector<std::pair<int, Goodbye>> ranks;

  SMDDP_FIELDS(ranks);
};

// The session has failed.
struct Abort {
  static constexpr ControlType kType = ControlType::kAbort;
  Status why;

  SMDDP_FIELDS(why);
  bool IsWellFormed() const { return !why.ok(); }
};

// The sender, a rank of another node, is alive.
struct HeartbeatMessage {
  static constexpr ControlType kType = ControlType::kHeartbeat;
  SMDDP_FIELDS();
};

// Several messages for one rank, none of them a batch.
struct Batch {
  static constexpr ControlType kType = ControlType::kBatch;
  std::vector<std::string> messages;

  SMDDP_FIELDS(messages);
  bool IsWellFormed() const;
};
// The messages of a batch, or the one that `bytes` is.
std::vector<std::string> Unpack(std::string bytes);

// None: `message` does not begin with a type.
std::optional<ControlType> TypeOf(std::string_view message);
// False for messages that ranks also send while no operation makes progress: heartbeats, timelines, stall reports,
// unused plans.
bool BelongsToWork(std::string_view message);

}  // namespace smddp
