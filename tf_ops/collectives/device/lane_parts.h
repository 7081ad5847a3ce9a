// The lane, as the stages of this folder see it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/device/blocks.h"
#include "collectives/device/lane.h"
#include "collectives/device/moments.h"
#include "collectives/device/peers.h"
#include "collectives/device/streams.h"
#include "collectives/device/turns.h"

namespace smddp {

class Lane : public DeviceLane {
 public:
  Lane(const Fabric& fabric, Device& device)
      : fabric_(fabric),
        device_(device),
        streams_(device),
        moments_(device),
        device_blocks_(device, Blocks::Kind::kDevice),
        pinned_blocks_(device, Blocks::Kind::kPinned),
        peers_(device),
        turns_(fabric) {}
  ~Lane() override;
  Status Make();

  Device& device() const override { return device_; }
  DeviceStage stage() const override { return stage_; }
  Status Open(const DeviceDecision& decision, const std::vector<DeviceCard>& cards,
              DeviceGroupLibrary* groups) override;
  Result<bool> Ready() override;
  void End(bool failed) override;
  bool busy() const override { return tasks_ > 0; }
  bool lends() const override { return stage_ == DeviceStage::kPeer && fabric_.topology.local_size() > 1; }
  void KeepMemory() override;

  const Fabric& fabric() const { return fabric_; }
  const Streams& streams() const { return streams_; }
  Blocks& device_blocks() { return device_blocks_; }
  Blocks& pinned_blocks() { return pinned_blocks_; }
  Result<MomentPtr> Mark(DeviceStream stream) { return moments_.Mark(stream); }

  // Is the shard exchanged between nodes from GPU memory?
  bool direct() const { return direct_; }
  Peers& peers() { return peers_; }
  DeviceGroup& group() { return *group_; }
  Turns& turns() { return turns_; }
  // A task begins, a task has ended.
  void Enter() { ++tasks_; }
  void Leave() { --tasks_; }
  // As those of the group. A peer's end is nothing yet for a moment: the session's own watch can say whose it was.
  Result<bool> GroupReady();
  Result<bool> GroupHealthy();
  // An error of the group, looked for from time to time.
  Status CheckGroup();

  // The status, with what was being done on which GPU.
  Status While(const char* doing, const Status& status) const;
  Result<bool> Passed(const Moment& moment, const char* doing) const;

 private:
  Result<bool> OfGroup(const Result<bool>& answer);
  bool Drain(double seconds);

  const Fabric& fabric_;
  Device& device_;
  DeviceStage stage_ = DeviceStage::kHost;
  bool direct_ = false;
  Streams streams_;
  Moments moments_;
  Blocks device_blocks_, pinned_blocks_;
  Peers peers_;
  Turns turns_;
  std::unique_ptr<DeviceGroup> group_;  // kGroup, where the node has several ranks
  int64_t checked_ns_ = 0, lost_ns_ = 0;
  int tasks_ = 0;
};

}  // namespace smddp
