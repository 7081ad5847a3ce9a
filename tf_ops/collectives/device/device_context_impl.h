// The device context as seen by the tasks of this folder.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/buffer_pool.h"
#include "collectives/device/device_context.h"
#include "collectives/device/event_pool.h"
#include "collectives/device/nccl_call_order.h"
#include "collectives/device/streams.h"

namespace smddp {

class DeviceContextImpl : public DeviceContext {
 public:
  DeviceContextImpl(const Fabric& fabric, Device& device)
      : fabric_(fabric),
        device_(device),
        streams_(device),
        events_(device),
        device_buffers_(device, BufferPool::Kind::kDevice),
        pinned_buffers_(device, BufferPool::Kind::kPinned),
        call_order_(fabric) {}
  ~DeviceContextImpl() override;
  Status Make();

  Device& device() const override { return device_; }
  DeviceMethod method() const override { return method_; }
  Status Open(const DeviceDecision& decision, const std::vector<RankDeviceInfo>& infos,
              DeviceGroupLibrary* groups) override;
  Result<bool> Ready() override;
  void End(bool failed) override;
  bool busy() const override { return tasks_ > 0; }
  void KeepMemory() override;

  const Fabric& fabric() const { return fabric_; }
  const Streams& streams() const { return streams_; }
  BufferPool& device_buffers() { return device_buffers_; }
  BufferPool& pinned_buffers() { return pinned_buffers_; }
  Result<PooledEventPtr> Mark(DeviceStream stream) { return events_.Mark(stream); }

  DeviceGroup& group() { return *group_; }
  NcclCallOrder& call_order() { return call_order_; }
  // Enter: a task begins. Leave: a task has ended.
  void Enter() { ++tasks_; }
  void Leave() { --tasks_; }
  // As those of the group. An error of a peer is not reported at once: the session's failure detector can name the
  // lost rank.
  Result<bool> GroupReady();
  Result<bool> GroupHealthy();
  // The group's error status, checked from time to time.
  Status CheckGroup();

  // Adds to the status what was being done on which GPU.
  Status While(const char* doing, const Status& status) const;
  Result<bool> Passed(const PooledEvent& event, const char* doing) const;

 private:
  Result<bool> OfGroup(const Result<bool>& answer);
  bool Drain(double seconds);

  const Fabric& fabric_;
  Device& device_;
  DeviceMethod method_ = DeviceMethod::kHost;
  Streams streams_;
  EventPool events_;
  BufferPool device_buffers_, pinned_buffers_;
  NcclCallOrder call_order_;
  std::unique_ptr<DeviceGroup> group_;  // kGroup, where the node has several ranks
  int64_t checked_ns_ = 0, lost_ns_ = 0;
  int tasks_ = 0;
};

}  // namespace smddp
