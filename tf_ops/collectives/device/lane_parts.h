// The lane, as the stages of this folder see it.
#pragma once

#include <memory>
#include <string>

#include "collectives/device/blocks.h"
#include "collectives/device/lane.h"
#include "collectives/device/moments.h"
#include "collectives/device/streams.h"

namespace smddp {

class Lane : public DeviceLane {
 public:
  Lane(const Fabric& fabric, Device& device)
      : fabric_(fabric),
        device_(device),
        streams_(device),
        moments_(device),
        device_blocks_(device, Blocks::Kind::kDevice),
        pinned_blocks_(device, Blocks::Kind::kPinned) {}
  ~Lane() override;
  Status Make();

  Device& device() const override { return device_; }
  DeviceStage stage() const override { return stage_; }
  Status Open(DeviceStage stage, const std::vector<DeviceCard>& cards, DeviceGroupLibrary* groups) override;
  Result<bool> Ready() override;
  void Abort() override;

  const Fabric& fabric() const { return fabric_; }
  const Streams& streams() const { return streams_; }
  Blocks& device_blocks() { return device_blocks_; }
  Blocks& pinned_blocks() { return pinned_blocks_; }
  Result<MomentPtr> Mark(DeviceStream stream) { return moments_.Mark(stream); }

  // The status, with what was being done on which GPU.
  Status While(const char* doing, const Status& status) const;

 private:
  bool Drain();

  const Fabric& fabric_;
  Device& device_;
  DeviceStage stage_ = DeviceStage::kHost;
  Streams streams_;
  Moments moments_;
  Blocks device_blocks_, pinned_blocks_;
};

}  // namespace smddp
