// A session's GPU: how its plans come to agree on the way their gradients take, and the lane they take it on.
//
// Which GPU a process uses is known when the first tensor on one comes, not when the session starts: until then the
// program may still choose, and asking CUDA earlier would leave a context on a GPU that it does not choose. So each
// plan agrees on its way before its first bucket begins: every rank brings a card (collectives/device/cards.h), rank 0
// hands all cards to all, and all decide alike. The first plan that goes from GPU to GPU opens the lane for that. Rank
// 0's answers come to all ranks in one order, so it is the same plan everywhere.
//
// Threads: the engine's, but for the constructor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/device/lane.h"
#include "runtime/announcement.h"
#include "runtime/devices.h"
#include "runtime/session.h"

namespace smddp {

class SessionDevices {
 public:
  // Both outlive it. `wanted` is SMDDP_GPU_STAGE, `direct` SMDDP_GPU_DIRECT.
  SessionDevices(const Fabric& fabric, Devices& devices, std::string wanted, std::string direct)
      : fabric_(fabric), devices_(devices), wanted_(std::move(wanted)), direct_(std::move(direct)) {}

  // Could tensors of this rank lie on a GPU, and is there anything to agree on?
  bool Possible() { return wanted_ != "host" && fabric_.topology.size() > 1 && devices_.Count() > 0; }
  // This rank's card; `tensors` are those it has of the plan by now.
  Result<std::string> CardFor(const std::vector<TensorRef>& tensors);
  // What the ranks' cards come to; begins to open the lane the first time it is used.
  Result<DeviceStage> Decide(const std::vector<std::string>& cards);
  // True: the lane is open, or has no need to be. Not to be asked after an error.
  Result<bool> Open();
  bool opening() const { return opening_; }

  // The lane of the GPU on which `tensors` lie, made when it is first needed. Null: all are in host memory, and no lane
  // was made. An error: they lie on several GPUs.
  Result<DeviceLane*> LaneFor(const std::vector<TensorRef>& tensors);
  void End(bool failed);
  bool busy() const { return lane_ != nullptr && lane_->busy(); }
  // As those of the lane.
  bool lends() const { return lane_ != nullptr && lane_->lends(); }
  void KeepMemory() {
    if (lane_ != nullptr) lane_->KeepMemory();
  }

 private:
  Status MakeLane(Device& device);

  const Fabric& fabric_;
  Devices& devices_;
  const std::string wanted_, direct_;
  std::unique_ptr<DeviceLane> lane_;
  bool opening_ = false, ended_ = false;
};

}  // namespace smddp
