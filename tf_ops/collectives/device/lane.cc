#include "collectives/device/lane.h"

#include <chrono>
#include <thread>

#include "collectives/device/lane_parts.h"
#include "collectives/device/stages.h"
#include "core/clock.h"
#include "core/log.h"

namespace smddp {
namespace {

// For what is left on the streams when a lane ends; and before it gives up what others lent.
constexpr double kDrainSeconds = 10, kEndSeconds = 5, kAbortSeconds = 2;
constexpr std::chrono::microseconds kDrainLook(100);
constexpr int64_t kCheckEveryNs = 100 * 1000000LL;
constexpr int64_t kWatchNs = 500 * 1000000LL;

}  // namespace

Lane::~Lane() {
  End(/*failed=*/false);
  if (Drain(kDrainSeconds)) return;
  Log(LogLevel::kWarning, "GPU " + std::to_string(device_.info().index) + " (" + device_.info().name +
                              ") did not finish its work on gradients within " +
                              std::to_string(static_cast<int>(kDrainSeconds)) +
                              " s; its buffers are left to the end of the process.");
  KeepMemory();
  peers_.Leak();
}

// True: nothing runs on the lane's streams any more.
bool Lane::Drain(double seconds) {
  const Deadline deadline = Deadline::After(seconds);
  for (int i = 0; i < Streams::kCount; ++i) {
    if (streams_.at(i) == nullptr) continue;
    const Result<MomentPtr> last = Mark(streams_.at(i));
    if (!last.ok()) continue;  // the device is broken: nothing runs there
    while (true) {
      const Result<bool> passed = (*last)->Passed();
      if (!passed.ok() || *passed) break;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kDrainLook);
    }
  }
  return true;
}

Status Lane::Make() { return While("making streams", streams_.Make()); }

Status Lane::While(const char* doing, const Status& status) const {
  if (status.ok()) return status;
  return Status(status.code(), "GPU " + std::to_string(device_.info().index) + " (" + device_.info().name + "), " +
                                   doing + ": " + status.message());
}

Result<bool> Lane::Passed(const Moment& moment, const char* doing) const {
  Result<bool> passed = moment.Passed();
  if (!passed.ok()) return While(doing, passed.status());
  return passed;
}

void Lane::KeepMemory() {
  device_blocks_.Leak();
  pinned_blocks_.Leak();
}

Status Lane::Open(const DeviceDecision& decision, const std::vector<DeviceCard>& cards, DeviceGroupLibrary* groups) {
  stage_ = decision.stage;
  direct_ = decision.direct;
  if (direct_) SMDDP_RETURN_IF_ERROR(While("making it MPI's", device_.MakeCurrent()));
  const Topology& topology = fabric_.topology;
  if (stage_ != DeviceStage::kGroup || topology.local_size() == 1) return Status::Ok();
  if (groups == nullptr) return Status(Code::kInternal, "A lane for NCCL was opened without NCCL.");
  const int first = topology.node().world_rank(0);
  const std::string& id = cards[first].group_id;
  if (id.empty()) {
    return Status(Code::kInternal,
                  "Rank " + std::to_string(topology.global_rank(first)) + " did not say by what NCCL's members meet.");
  }
  Result<std::unique_ptr<DeviceGroup>> group = groups->Join(id, topology.local_size(), topology.local_rank(), device_);
  SMDDP_RETURN_IF_ERROR(While("joining the node's other GPUs", group.status()));
  group_ = std::move(*group);
  return Status::Ok();
}

Result<bool> Lane::Ready() {
  if (group_ == nullptr) return true;
  SMDDP_RETURN_IF_ERROR(CheckGroup());
  return GroupReady();
}

Result<bool> Lane::OfGroup(const Result<bool>& answer) {
  if (answer.ok()) return answer;
  const int64_t now_ns = NowNs();
  if (lost_ns_ == 0) lost_ns_ = now_ns;
  if (answer.status().code() == Code::kPeerLost && now_ns - lost_ns_ < kWatchNs) return false;
  return While("NCCL", answer.status());
}

Result<bool> Lane::GroupReady() { return OfGroup(group_->Ready()); }

Result<bool> Lane::GroupHealthy() {
  const Status health = group_->Health();
  return OfGroup(health.ok() ? Result<bool>(true) : Result<bool>(health));
}

Status Lane::CheckGroup() {
  const int64_t now_ns = NowNs();
  if (group_ == nullptr || now_ns - checked_ns_ < kCheckEveryNs) return Status::Ok();
  checked_ns_ = now_ns;
  return GroupHealthy().status();
}

void Lane::End(bool failed) {
  if (group_ != nullptr && (failed || !Drain(kEndSeconds))) group_->Abort();
  group_ = nullptr;  // else in peace: other ranks may still read what this one has sent
  if (Drain(kAbortSeconds)) peers_.Close();
}

Result<std::unique_ptr<DeviceLane>> MakeDeviceLane(const Fabric& fabric, Device& device) {
  auto lane = std::make_unique<Lane>(fabric, device);
  SMDDP_RETURN_IF_ERROR(lane->Make());
  return std::unique_ptr<DeviceLane>(std::move(lane));
}

bool TakesDevicePath(const DeviceLane& lane, const FusedCall& call) {
  return lane.stage() != DeviceStage::kHost && call.op == ReduceOp::kSum && IsFloating(call.view->dtype()) &&
         IsFloating(call.view->wire());
}

TaskPtr DeviceAllreduce(DeviceLane& any_lane, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  Lane& lane = static_cast<Lane&>(any_lane);
  const Topology& topology = lane.fabric().topology;
  const bool floating = IsFloating(call.call.view->dtype());
  bool on_device = false;
  for (const auto& work : call.works) on_device |= work != nullptr;
  const bool takes_device_path = !call.through_host && TakesDevicePath(lane, call.call);
  if ((!takes_device_path && !on_device) || call.call.view->elements() == 0) {
    return HierarchicalAllreduce(lane.fabric(), rail, call.call, call.chunking);
  }
  if (topology.size() == 1 && floating) return AloneStage(lane, rail, call);
  if (!takes_device_path) return HostStage(lane, rail, call);
  if (topology.local_size() == 1) return AloneStage(lane, rail, call);
  return lane.stage() == DeviceStage::kPeer ? PeerStage(lane, rail, call) : GroupStage(lane, rail, call);
}

}  // namespace smddp
