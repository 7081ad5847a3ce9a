#include "collectives/device/lane.h"

#include <chrono>
#include <thread>

#include "collectives/device/lane_parts.h"
#include "collectives/device/stages.h"
#include "core/clock.h"
#include "core/log.h"

namespace smddp {
namespace {

// For what is left on the streams when a lane ends.
constexpr double kDrainSeconds = 10;
constexpr std::chrono::microseconds kDrainLook(200);

}  // namespace

Lane::~Lane() {
  Abort();
  if (Drain()) return;
  Log(LogLevel::kWarning, "GPU " + std::to_string(device_.info().index) + " (" + device_.info().name +
                              ") did not finish its work on gradients within " +
                              std::to_string(static_cast<int>(kDrainSeconds)) +
                              " s; its buffers are left to the end of the process.");
  device_blocks_.Leak();
  pinned_blocks_.Leak();
}

// True: nothing runs on the lane's streams any more.
bool Lane::Drain() {
  const Deadline deadline = Deadline::After(kDrainSeconds);
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

Status Lane::Open(DeviceStage stage, const std::vector<DeviceCard>&, DeviceGroupLibrary*) {
  if (stage == DeviceStage::kHost) return Status::Ok();
  return Status(Code::kUnimplemented, "This way between GPUs does not exist yet.");
}

Result<bool> Lane::Ready() { return true; }

void Lane::Abort() {}

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
  bool on_device = false;
  for (const auto& work : call.works) on_device |= work != nullptr;
  const bool nothing_on_device = !TakesDevicePath(lane, call.call) && !on_device;
  if (nothing_on_device || call.call.view->elements() == 0) {
    return HierarchicalAllreduce(lane.fabric(), rail, call.call, call.chunking);
  }
  return HostStage(lane, rail, call);
}

}  // namespace smddp
