#include "runtime/announcement.h"

#include <algorithm>

#include "core/shape.h"
#include "core/wire.h"
#include "runtime/carried.h"
#include "transport/transport.h"

namespace smddp {
namespace {

constexpr const char* kNames[] = {"allreduce", "broadcast", "allgather",     "barrier",
                                  "plan",      "alltoall",  "reducescatter", "agreement on"};
constexpr const char* kCapitalNames[] = {"ALLREDUCE", "BROADCAST", "ALLGATHER",     "BARRIER",
                                         "PLAN",      "ALLTOALL",  "REDUCESCATTER", "DEVICES"};
constexpr int kKinds = 8;
// A card names a GPU and says why NCCL cannot be used.
constexpr size_t kMostCardBytes = 4096;

WireWriter Begin(ControlType type) {
  WireWriter writer;
  writer.Put(type);
  return writer;
}

void PutStatus(WireWriter* writer, const Status& status) {
  writer->Put(static_cast<uint8_t>(status.code()));
  writer->PutText(status.message());
}

Status GetStatus(WireReader* reader) {
  const uint8_t code = reader->Get<uint8_t>();
  std::string message = reader->GetText();
  return Status(code <= static_cast<uint8_t>(Code::kDataLoss) ? static_cast<Code>(code) : Code::kInternal,
                std::move(message));
}

bool IsType(WireReader* reader, ControlType type) { return reader->Get<ControlType>() == type && reader->ok(); }

// One byte; no dtype has the number of "none".
constexpr uint8_t kNoWireDType = kDTypeCount;

void PutWireDType(WireWriter* writer, const WireDType& wire) {
  writer->Put(wire ? static_cast<uint8_t>(*wire) : kNoWireDType);
}

// Any other number is refused by Sane.
WireDType GetWireDType(WireReader* reader) {
  const uint8_t number = reader->Get<uint8_t>();
  return number == kNoWireDType ? WireDType() : WireDType(static_cast<DType>(number));
}

bool Exists(DType dtype) { return static_cast<int>(dtype) < kDTypeCount; }

bool AllReducible(const Announcement& announcement) {
  const bool adasum = announcement.op == ReduceOp::kAdasum;
  return std::all_of(announcement.dtypes.begin(), announcement.dtypes.end(),
                     [adasum](DType dtype) { return adasum ? IsFloating(dtype) : IsReducible(dtype); });
}

// What a small reduction brings is summed before anything else looks at it.
bool DataIsSane(const Announcement& announcement) {
  if (announcement.data.empty()) return true;
  if (announcement.kind == RequestKind::kPlan) return announcement.data == kHasDevices;
  if (announcement.kind == RequestKind::kDevices) return announcement.data.size() <= kMostCardBytes;
  const bool reduces = announcement.kind == RequestKind::kAllreduce || announcement.kind == RequestKind::kReducescatter;
  return reduces && announcement.data.size() <= kMostCarriedBytes && announcement.op != ReduceOp::kAdasum &&
         AllReducible(announcement);
}

bool Sane(const Announcement& announcement) {
  return static_cast<int>(announcement.kind) < kKinds && announcement.op <= ReduceOp::kProduct &&
         announcement.dtypes.size() == announcement.shapes.size() &&
         std::all_of(announcement.dtypes.begin(), announcement.dtypes.end(), Exists) &&
         std::all_of(announcement.shapes.begin(), announcement.shapes.end(), IsPossible) &&
         (!announcement.wire_dtype || (Exists(*announcement.wire_dtype) && IsFloating(*announcement.wire_dtype))) &&
         DataIsSane(announcement);
}

// A rank that has joined does what `request` says without having been asked by anybody on its side.
bool SaneForJoined(const Announcement& request) {
  if (request.kind == RequestKind::kDevices) return true;
  const bool plan = request.kind == RequestKind::kPlan;
  return (plan || request.kind == RequestKind::kAllreduce) && AllReducible(request) &&
         !(plan && request.op == ReduceOp::kAdasum);
}

bool Sane(const Verdict& verdict) {
  const auto possible = [](int64_t rows) { return rows >= 0 && rows <= kMostElements; };
  if (verdict.operation >= kMaxOperation) return false;  // the last one is nobody's
  if (!std::all_of(verdict.dim0_of_rank.begin(), verdict.dim0_of_rank.end(), possible)) return false;
  return verdict.joined.empty() || !verdict.status.ok() || SaneForJoined(verdict.request);
}

}  // namespace

void PutSteps(WireWriter* writer, const StepCounts& steps) {
  writer->Put(static_cast<uint32_t>(steps.size()));
  for (const auto& [plan, count] : steps) {
    writer->PutText(plan);
    writer->Put(count);
  }
}

StepCounts GetSteps(WireReader* reader) {
  StepCounts steps;
  const uint32_t plans = reader->Get<uint32_t>();
  for (uint32_t i = 0; i < plans && reader->ok(); ++i) {
    const std::string plan = reader->GetText();
    steps[plan] = reader->Get<int64_t>();
  }
  return steps;
}

const char* NameOf(RequestKind kind) { return kNames[static_cast<int>(kind)]; }
const char* CapitalNameOf(RequestKind kind) { return kCapitalNames[static_cast<int>(kind)]; }

std::string Encode(const Announcement& announcement) {
  WireWriter writer = Begin(ControlType::kAnnouncement);
  writer.Put(announcement.kind);
  writer.PutText(announcement.name);
  writer.PutList(announcement.dtypes);
  writer.Put(static_cast<uint32_t>(announcement.shapes.size()));
  for (const auto& shape : announcement.shapes) writer.PutList(shape);
  writer.Put(announcement.op);
  writer.Put(announcement.root);
  writer.Put(announcement.prescale);
  writer.Put(announcement.postscale);
  PutWireDType(&writer, announcement.wire_dtype);
  writer.Put(static_cast<uint8_t>(announcement.even_split));
  writer.PutList(announcement.splits);
  writer.Put(static_cast<uint32_t>(announcement.facts.size()));
  for (const std::string& fact : announcement.facts) writer.PutText(fact);
  writer.PutText(announcement.plan_key);
  writer.Put(static_cast<uint8_t>(announcement.alone));
  writer.PutText(announcement.data);
  writer.Put(static_cast<uint8_t>(announcement.duplicate));
  writer.Put(announcement.round);
  return writer.Take();
}

bool Decode(std::string_view message, Announcement* announcement) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kAnnouncement)) return false;
  announcement->kind = reader.Get<RequestKind>();
  announcement->name = reader.GetText();
  announcement->dtypes = reader.GetList<DType>();
  const uint32_t shapes = reader.Get<uint32_t>();
  for (uint32_t i = 0; i < shapes && reader.ok(); ++i) announcement->shapes.push_back(reader.GetList<int64_t>());
  announcement->op = reader.Get<ReduceOp>();
  announcement->root = reader.Get<int32_t>();
  announcement->prescale = reader.Get<double>();
  announcement->postscale = reader.Get<double>();
  announcement->wire_dtype = GetWireDType(&reader);
  announcement->even_split = reader.GetBool();
  announcement->splits = reader.GetList<int64_t>();
  const uint32_t facts = reader.Get<uint32_t>();
  for (uint32_t i = 0; i < facts && reader.ok(); ++i) announcement->facts.push_back(reader.GetText());
  announcement->plan_key = reader.GetText();
  announcement->alone = reader.GetBool();
  announcement->data = reader.GetText();
  announcement->duplicate = reader.GetBool();
  announcement->round = reader.Get<uint32_t>();
  return reader.at_end() && Sane(*announcement);
}

std::string Encode(const Verdict& verdict) {
  WireWriter writer = Begin(ControlType::kVerdict);
  writer.PutText(verdict.name);
  PutStatus(&writer, verdict.status);
  writer.Put(verdict.operation);
  writer.PutList(verdict.dim0_of_rank);
  writer.PutText(verdict.data);
  writer.PutList(verdict.joined);
  if (!verdict.joined.empty()) writer.PutText(Encode(verdict.request));
  return writer.Take();
}

bool Decode(std::string_view message, Verdict* verdict) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kVerdict)) return false;
  verdict->name = reader.GetText();
  verdict->status = GetStatus(&reader);
  verdict->operation = reader.Get<uint32_t>();
  verdict->dim0_of_rank = reader.GetList<int64_t>();
  verdict->data = reader.GetText();
  verdict->joined = reader.GetList<int>();
  if (!verdict->joined.empty() && !Decode(reader.GetText(), &verdict->request)) return false;
  return reader.at_end() && Sane(*verdict);
}

std::string Encode(const PlanOrder& order) {
  WireWriter writer = Begin(ControlType::kPlanOrder);
  writer.Put(order.plan);
  writer.PutList(order.order);
  writer.Put(order.settings.bucket_bytes);
  writer.Put(order.settings.chunk_bytes);
  writer.Put(order.settings.chunks_in_flight);
  writer.Put(order.settings.algorithm);
  writer.Put(order.steps);
  return writer.Take();
}

bool Decode(std::string_view message, PlanOrder* order) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kPlanOrder)) return false;
  order->plan = reader.Get<int32_t>();
  order->order = reader.GetList<int>();
  order->settings.bucket_bytes = reader.Get<int64_t>();
  order->settings.chunk_bytes = reader.Get<int64_t>();
  order->settings.chunks_in_flight = reader.Get<int32_t>();
  order->settings.algorithm = reader.Get<int32_t>();
  order->steps = reader.Get<int32_t>();
  return reader.at_end();
}

std::string Encode(const JoinNotice& notice) {
  WireWriter writer = Begin(ControlType::kJoinNotice);
  writer.Put(notice.round);
  writer.Put(static_cast<uint8_t>(notice.joins));
  writer.Put(static_cast<uint8_t>(notice.drained));
  PutSteps(&writer, notice.steps);
  return writer.Take();
}

bool Decode(std::string_view message, JoinNotice* notice) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kJoinNotice)) return false;
  notice->round = reader.Get<uint32_t>();
  notice->joins = reader.GetBool();
  notice->drained = reader.GetBool();
  notice->steps = GetSteps(&reader);
  return reader.at_end();
}

std::string Encode(const JoinOver& over) {
  WireWriter writer = Begin(ControlType::kJoinOver);
  writer.Put(over.last);
  PutSteps(&writer, over.steps);
  return writer.Take();
}

bool Decode(std::string_view message, JoinOver* over) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kJoinOver)) return false;
  over->last = reader.Get<int32_t>();
  over->steps = GetSteps(&reader);
  return reader.at_end() && over->last >= 0;
}

std::string Encode(const StepGivenUp& given_up) {
  WireWriter writer = Begin(ControlType::kStepGivenUp);
  writer.PutText(given_up.plan);
  writer.Put(given_up.step);
  writer.Put(static_cast<uint8_t>(given_up.known));
  return writer.Take();
}

bool Decode(std::string_view message, StepGivenUp* given_up) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kStepGivenUp)) return false;
  given_up->plan = reader.GetText();
  given_up->step = reader.Get<int64_t>();
  given_up->known = reader.GetBool();
  return reader.at_end() && given_up->step > 0;
}

std::string Encode(const RequestGivenUp& given_up) {
  WireWriter writer = Begin(ControlType::kRequestGivenUp);
  writer.PutText(given_up.name);
  return writer.Take();
}

bool Decode(std::string_view message, RequestGivenUp* given_up) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kRequestGivenUp)) return false;
  given_up->name = reader.GetText();
  return reader.at_end();
}

std::string Encode(const Goodbye& goodbye) {
  WireWriter writer = Begin(ControlType::kGoodbye);
  writer.Put(static_cast<uint8_t>(goodbye.clean));
  writer.Put(static_cast<uint8_t>(goodbye.listens));
  return writer.Take();
}

bool Decode(std::string_view message, Goodbye* goodbye) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kGoodbye)) return false;
  goodbye->clean = reader.GetBool();
  goodbye->listens = reader.GetBool();
  return reader.at_end();
}

std::string EncodeAbort(const Status& why) {
  WireWriter writer = Begin(ControlType::kAbort);
  PutStatus(&writer, why);
  return writer.Take();
}

std::string EncodeBeat() { return Begin(ControlType::kBeat).Take(); }

bool DecodeAbort(std::string_view message, Status* why) {
  WireReader reader(message);
  if (!IsType(&reader, ControlType::kAbort)) return false;
  *why = GetStatus(&reader);
  return reader.at_end() && !why->ok();
}

bool TypeOf(std::string_view message, ControlType* type) {
  if (message.empty()) return false;
  *type = static_cast<ControlType>(message[0]);
  return (*type >= ControlType::kAnnouncement && *type <= ControlType::kRequestGivenUp) ||
         (*type >= ControlType::kTimeline && *type <= ControlType::kStall);
}

bool BelongsToWork(std::string_view message) {
  ControlType type;
  if (!TypeOf(message, &type)) return true;
  return type != ControlType::kBeat && type != ControlType::kTimeline && type != ControlType::kStall &&
         type != ControlType::kPlanRetirement;
}

std::string EncodeCards(const std::map<int, Announcement>& by_rank, int size) {
  WireWriter writer;
  for (int rank = 0; rank < size; ++rank) {
    const auto at = by_rank.find(rank);
    writer.PutText(at == by_rank.end() ? std::string() : at->second.data);
  }
  return writer.Take();
}

Result<std::vector<std::string>> DecodeCards(const std::string& text, int size) {
  WireReader reader(text);
  std::vector<std::string> cards;
  for (int rank = 0; rank < size && reader.ok(); ++rank) cards.push_back(reader.GetText());
  if (reader.at_end()) return cards;
  return Status(Code::kInternal,
                "Rank 0 sent descriptions of GPUs that cannot be read. Do all ranks run the same version of smddp_tf?");
}

}  // namespace smddp
