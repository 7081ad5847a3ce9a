#include "collectives/device/device_context.h"

#include <chrono>
#include <thread>

#include "collectives/device/methods/methods.h"
#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

// Time limits for work left on the streams: when a context is destroyed, and when it ends.
constexpr double kDrainSeconds = 10, kEndSeconds = 5;
constexpr std::chrono::microseconds kDrainLook(100);
constexpr int64_t kCheckEveryNs = 100 * 1000000LL;
constexpr int64_t kWatchNs = 500 * 1000000LL;

}  // namespace

DeviceContext::~DeviceContext() {
  End(/*failed=*/false);
  if (Drain(kDrainSeconds)) return;
  Log(LogLevel::kWarning, "GPU " + std::to_string(device_.info().index) + " (" + device_.info().name +
                              ") did not finish its work on gradients within " +
                              std::to_string(static_cast<int>(kDrainSeconds)) +
                              " s; its buffers are kept until the process ends.");
  KeepMemory();
}

// True: nothing runs on the context's streams any more.
bool DeviceContext::Drain(double seconds) {
  const Deadline deadline = Deadline::After(seconds);
  for (int i = 0; i < Streams::kCount; ++i) {
    if (streams_.at(i) == nullptr) continue;
    const Result<PooledEventPtr> last = Mark(streams_.at(i));
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

Status DeviceContext::While(const char* doing, const Status& status) const {
  if (status.ok()) return status;
  return Status(status.reason(), "GPU " + std::to_string(device_.info().index) + " (" + device_.info().name + "), " +
                                     doing + ": " + status.message());
}

Result<bool> DeviceContext::Passed(const PooledEvent& event, const char* doing) const {
  Result<bool> passed = event.Passed();
  if (!passed.ok()) return While(doing, passed.status());
  return passed;
}

void DeviceContext::KeepMemory() {
  device_buffers_.Leak();
  pinned_buffers_.Leak();
}

Status DeviceContext::Open(const DeviceDecision& decision, const std::vector<RankDeviceInfo>& infos,
                           DeviceGroupLibrary* groups) {
  method_ = decision.method;
  const Topology& topology = fabric_.topology;
  if (method_ != DeviceMethod::kGroup || topology.local_size() == 1) return Status::Ok();
  if (groups == nullptr) return Status(Reason::kInternal, "A device context for NCCL was opened without NCCL.");
  const int first = topology.node().world_rank(0);
  const std::string& id = infos[first].group_id;
  if (id.empty()) {
    return Status(Reason::kInternal, "Rank " + std::to_string(topology.global_rank(first)) + " sent no ncclUniqueId.");
  }
  Result<std::unique_ptr<DeviceGroup>> group = groups->Join(id, topology.local_size(), topology.local_rank(), device_);
  SMDDP_RETURN_IF_ERROR(While("joining the node's other GPUs", group.status()));
  group_ = std::move(*group);
  return Status::Ok();
}

Result<bool> DeviceContext::Ready() {
  if (group_ == nullptr) return true;
  SMDDP_RETURN_IF_ERROR(CheckGroup());
  return GroupReady();
}

Result<bool> DeviceContext::OfGroup(const Result<bool>& answer) {
  if (answer.ok()) return answer;
  const int64_t now_ns = NowNs();
  if (lost_ns_ == 0) lost_ns_ = now_ns;
  if (answer.status().reason() == Reason::kPeerLost && now_ns - lost_ns_ < kWatchNs) return false;
  return While("NCCL", answer.status());
}

Result<bool> DeviceContext::GroupReady() { return OfGroup(group_->Ready()); }

Result<bool> DeviceContext::GroupHealthy() {
  const Status health = group_->Health();
  return OfGroup(health.ok() ? Result<bool>(true) : Result<bool>(health));
}

Status DeviceContext::CheckGroup() {
  const int64_t now_ns = NowNs();
  if (group_ == nullptr || now_ns - checked_ns_ < kCheckEveryNs) return Status::Ok();
  checked_ns_ = now_ns;
  return GroupHealthy().status();
}

void DeviceContext::End(bool failed) {
  if (group_ != nullptr && (failed || !Drain(kEndSeconds))) group_->Abort();
  group_ = nullptr;  // else without Abort: other ranks may still read what this one has sent
}

bool TakesDevicePath(const DeviceContext& context, const FusedCall& call) {
  return context.method() != DeviceMethod::kHost && call.op == ReduceOp::kSum && IsFloating(call.view->dtype()) &&
         IsFloating(call.view->wire());
}

TaskPtr DeviceAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  const Topology& topology = context.fabric().topology;
  const bool floating = IsFloating(call.call.view->dtype());
  bool on_device = false;
  for (const auto& work : call.works) on_device |= work != nullptr;
  const bool takes_device_path = !call.through_host && TakesDevicePath(context, call.call);
  if ((!takes_device_path && !on_device) || call.call.view->elements() == 0) {
    return HierarchicalAllreduce(context.fabric(), rail, call.call);
  }
  if (topology.size() == 1 && floating) return AloneAllreduce(context, rail, call);
  if (!takes_device_path) return HostAllreduce(context, rail, call);
  if (topology.local_size() == 1) return AloneAllreduce(context, rail, call);
  return GroupAllreduce(context, rail, call);
}

}  // namespace smddp
