#include "collectives/device/device_context.h"

#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

// Time limits for work left on the streams: when a context is destroyed, and when it ends.
constexpr double kDrainSeconds = 10, kEndSeconds = 5;
constexpr std::chrono::microseconds kDrainLook(100);

}  // namespace

DeviceContext::~DeviceContext() {
  End(/*failed=*/false);
  if (Drain(kDrainSeconds)) return;
  Log(LogLevel::kWarning, "GPU ", device_.info().index, " (", device_.info().name,
      ") did not finish its work on gradients within ", static_cast<int>(kDrainSeconds),
      " s; its buffers are kept until the process ends.");
  KeepMemory();
}

// True: nothing runs on the context's streams any more.
bool DeviceContext::Drain(double seconds) {
  const Deadline deadline = Deadline::After(seconds);
  for (const DeviceStream stream : streams_.all()) {
    if (stream == nullptr) continue;
    const Result<PooledEventPtr> last = Mark(stream);
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
  return Status(status.reason(), "GPU ", device_.info().index, " (", device_.info().name, "), ", doing, ": ",
                status.message());
}

void DeviceContext::KeepMemory() {
  device_buffers_.Leak();
  pinned_buffers_.Leak();
}

Status DeviceContext::Join(const Group& members, const std::string& id, DeviceGroupLibrary& groups) {
  const int me = members.position_of(fabric_.topology.rank());
  SMDDP_ASSIGN_OR_RETURN(auto group, groups.Join(id, members.size(), me, device_));
  calls_ = std::make_unique<GroupCalls>(fabric_, members, std::move(group), events_, streams_.reduce());
  return Status::Ok();
}

void DeviceContext::End(bool failed) {
  if (calls_ != nullptr && (failed || !Drain(kEndSeconds))) calls_->Abort();
  calls_ = nullptr;  // else without Abort: other ranks may still read what this one has sent
}

}  // namespace smddp
