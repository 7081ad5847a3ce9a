// What a rank tells the coordinator of a name, and what the coordinator answers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "fusion/plan.h"
#include "runtime/tune_settings.h"

namespace smddp {

enum class RequestKind : uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kAllgather = 2,
  kBarrier = 3,
  kPlan = 4,
  kAlltoall = 5,
  kReducescatter = 6,
  kDevices = 7,  // what GPU each rank uses for a plan: `data` holds its card, and that of the verdict all of them
};

// Also asked of ranks that have joined, once in a session, so that no round of hvd.join counts. Rank 0 answers.
inline bool OutlivesRounds(RequestKind kind) { return kind == RequestKind::kPlan || kind == RequestKind::kDevices; }

// "allreduce", ...; and in Horovod's capitals for the texts that scripts grep for.
const char* NameOf(RequestKind kind);
const char* CapitalNameOf(RequestKind kind);

// Announcement::data of a plan.
constexpr char kHasDevices[] = "GPU";

struct Announcement {
  RequestKind kind = RequestKind::kBarrier;
  std::string name;
  std::vector<DType> dtypes;                 // one per tensor
  std::vector<std::vector<int64_t>> shapes;  // one per tensor
  ReduceOp op = ReduceOp::kSum;
  int32_t root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype;            // kAllreduce, kReducescatter
  bool even_split = false;         // kAlltoall: as many rows for every rank; then there are no splits
  std::vector<int64_t> splits;     // kAlltoall: rows for each rank
  std::vector<std::string> facts;  // kPlan: fusion/plan.h DescribePlan
  std::string plan_key;            // kPlan: and the number of its place, where there are several
  bool alone = true;               // kPlan: session.h PlannedTensor::alone
  std::string data;                // of a reduction: what a small one brings (runtime/carried.h). kPlan: not empty
                                   // where a GPU is at hand
  bool duplicate = false;          // this rank had another request of that name waiting
  uint32_t round = 0;              // of hvd.join, in which it was made
};

struct Verdict {
  std::string name;
  Status status;  // not OK: the ranks disagree; the same on every rank
  uint32_t operation = 0;
  std::vector<int64_t> dim0_of_rank;  // kAllgather: for each tensor, the rows of every rank
  std::string data;                   // of a reduction: what a small one gives
  std::vector<int> joined;            // ranks that did not ask for it: they have joined, and bring zeros
  Announcement request;               // where there are such ranks: what they take part in
  std::set<int> answered;             // not sent: ranks that have had an answer already
};

// From rank 0: how the next reductions of a plan's tensors are put into buckets, and how those are reduced. One message
// for each epoch but the first (runtime/plan_table.h); without autotune there is one.
struct PlanOrder {
  int32_t plan = 0;        // its number on the wire
  std::vector<int> order;  // empty: as listed
  TuneSettings settings;
  int32_t steps = 0;  // how many reductions of each tensor it holds for; 0: for good
};

// By the name of a plan: how many reductions of its tensors have begun.
using StepCounts = std::map<std::string, int64_t>;

// hvd.join, from one rank to others.
struct JoinNotice {
  uint32_t round = 0;    // the sender's
  bool joins = false;    // it has no more data
  bool drained = false;  // and none of its own requests is under way any more; to rank 0
  StepCounts steps;      // how far it is
};

// A rank gave up a step of a plan, to all others; and their answer, that they know.
struct StepGivenUp {
  std::string plan;  // its name
  int64_t step = 0;  // counted from 1
  bool known = false;
};

// A rank gave up the step that holds its request of that name, to the name's coordinator.
struct RequestGivenUp {
  std::string name;
};

// From rank 0: all have joined.
struct JoinOver {
  int32_t last = 0;
  StepCounts steps;  // how far the furthest is
};

class WireWriter;
class WireReader;
void PutSteps(WireWriter* writer, const StepCounts& steps);
StepCounts GetSteps(WireReader* reader);

// Every control message begins with one of these.
enum class ControlType : uint8_t {
  kAnnouncement = 1,
  kVerdict = 2,
  kGoodbye = 3,
  kAbort = 4,
  kPlanOrder = 5,
  kJoinNotice = 6,
  kJoinOver = 7,
  kBeat = 8,  // a rank of another node lives; nothing follows
  kStepGivenUp = 9,
  kPlanRetirement = 10,
  kRequestGivenUp = 11,
  kTimeline = 32,
  kLastWords = 33,
  kStall = 34,
};

std::string Encode(const Announcement& announcement);
std::string Encode(const Verdict& verdict);
std::string Encode(const PlanOrder& order);
std::string Encode(const JoinNotice& notice);
std::string Encode(const JoinOver& over);
std::string Encode(const StepGivenUp& given_up);
std::string Encode(const RequestGivenUp& given_up);
// `clean`: the sender had nothing under way; `listens`: it reads what comes until all have left.
struct Goodbye {
  bool clean = false, listens = false;
};
std::string Encode(const Goodbye& goodbye);
std::string EncodeAbort(const Status& why);
std::string EncodeBeat();

// Decoding takes the whole message. False: it is not well formed.
bool TypeOf(std::string_view message, ControlType* type);
// False of what ranks tell one another also while all operations stand still: beats, timelines, reports of stalls,
// plans that nobody uses.
bool BelongsToWork(std::string_view message);
bool Decode(std::string_view message, Announcement* announcement);
bool Decode(std::string_view message, Verdict* verdict);
bool Decode(std::string_view message, PlanOrder* order);
bool Decode(std::string_view message, JoinNotice* notice);
bool Decode(std::string_view message, JoinOver* over);
bool Decode(std::string_view message, StepGivenUp* given_up);
bool Decode(std::string_view message, RequestGivenUp* given_up);
bool Decode(std::string_view message, Goodbye* goodbye);
bool DecodeAbort(std::string_view message, Status* why);

// The cards of all ranks, as rank 0 sends them: by rank, "" of those that have joined.
std::string EncodeCards(const std::map<int, Announcement>& by_rank, int size);
Result<std::vector<std::string>> DecodeCards(const std::string& text, int size);

}  // namespace smddp
