#include "runtime/control/messages.h"

#include "core/shape.h"
#include "transport/transport.h"

namespace smddp {
namespace {

constexpr const char* kNames[] = {"allreduce", "broadcast", "allgather",     "barrier",
                                  "plan",      "alltoall",  "reducescatter", "agreement on"};
constexpr const char* kCapitalNames[] = {"ALLREDUCE", "BROADCAST", "ALLGATHER",     "BARRIER",
                                         "PLAN",      "ALLTOALL",  "REDUCESCATTER", "DEVICES"};
// A device info names a GPU and says why NCCL cannot be used.
constexpr size_t kMaxDeviceInfoBytes = 4096;

bool Exists(DType dtype) { return static_cast<int>(dtype) < kDTypeCount; }

bool AllReducible(const Announcement& announcement) {
  const bool adasum = announcement.op == ReduceOp::kAdasum;
  return std::all_of(announcement.tensors.begin(), announcement.tensors.end(), [adasum](const TensorSpec& tensor) {
    return adasum ? IsFloating(tensor.dtype) : IsReducible(tensor.dtype);
  });
}

// The data of a small reduction are summed before any other check; those of a small allgather have any dtype.
bool DataIsPossible(const Announcement& announcement) {
  if (announcement.data.empty()) return true;
  if (announcement.kind == RequestKind::kPlan) return announcement.data == kHasDevices;
  if (announcement.kind == RequestKind::kDevices) return announcement.data.size() <= kMaxDeviceInfoBytes;
  if (announcement.kind == RequestKind::kAllgather) return announcement.data.size() <= kMaxInlineBytes;
  const bool reduces = announcement.kind == RequestKind::kAllreduce || announcement.kind == RequestKind::kReducescatter;
  return reduces && announcement.data.size() <= kMaxInlineBytes && announcement.op != ReduceOp::kAdasum &&
         AllReducible(announcement);
}

// A rank that has joined executes `request` although its own program has not asked for it.
bool IsPossibleForJoined(const Announcement& request) {
  if (request.kind == RequestKind::kDevices) return true;
  const bool plan = request.kind == RequestKind::kPlan;
  return (plan || request.kind == RequestKind::kAllreduce) && AllReducible(request) &&
         !(plan && request.op == ReduceOp::kAdasum);
}

}  // namespace

bool Announcement::IsPossible() const {
  const auto possible = [](const TensorSpec& tensor) {
    return Exists(tensor.dtype) && smddp::IsPossible(tensor.shape);
  };
  return static_cast<int>(kind) < kRequestKinds && op <= ReduceOp::kProduct &&
         std::all_of(tensors.begin(), tensors.end(), possible) &&
         (!wire_dtype || (Exists(*wire_dtype) && (IsFloating(*wire_dtype) || *wire_dtype == DType::kInt8))) &&
         DataIsPossible(*this);
}

bool Verdict::IsWellFormed() const {
  const auto possible = [](int64_t rows) { return rows >= 0 && rows <= kMaxElements; };
  if (static_cast<int>(kind) >= kRequestKinds || operation >= kMaxOperation) return false;  // the last one is reserved
  if (!std::all_of(dim0_of_rank.begin(), dim0_of_rank.end(), possible)) return false;
  if (!fused.empty() && (kind != RequestKind::kAllreduce || !status.ok() || !joined.empty())) return false;
  if (joined.empty()) return true;
  return request.IsWellFormed() && request.kind == kind && (!status.ok() || IsPossibleForJoined(request));
}

const char* NameOf(RequestKind kind) { return kNames[static_cast<int>(kind)]; }
const char* CapitalNameOf(RequestKind kind) { return kCapitalNames[static_cast<int>(kind)]; }

Status GivenUpBy(int rank) {
  return Status(Reason::kStepGivenUp, "Rank ", rank,
                " gave up a step: another operation of the step failed there before the gradients were reduced (see "
                "that rank's own error). The step has failed on all ranks; the session continues with the next one.");
}

bool Batch::IsWellFormed() const {
  return std::none_of(messages.begin(), messages.end(),
                      [](const std::string& message) { return TypeOf(message) == ControlType::kBatch; });
}

std::vector<std::string> Unpack(std::string bytes) {
  Batch batch;
  if (!Decode(bytes, &batch)) batch.messages = {std::move(bytes)};
  return std::move(batch.messages);
}

std::optional<ControlType> TypeOf(std::string_view message) {
  if (message.empty()) return std::nullopt;
  const auto type = static_cast<ControlType>(message[0]);
  return type >= ControlType::kAnnouncement && type <= ControlType::kDeparted ? std::optional(type) : std::nullopt;
}

bool BelongsToWork(std::string_view message) {
  const std::optional<ControlType> type = TypeOf(message);
  return type != ControlType::kHeartbeat && type != ControlType::kTimeline && type != ControlType::kStall &&
         type != ControlType::kPlanRetirement;
}

}  // namespace smddp
