// A session's GPU: the agreement on how the gradients of its plans are reduced, and the device context for that.
//
// Which GPU a process uses is known when the first tensor on one arrives, not when the session starts: until then the
// program may still choose, and asking CUDA earlier would leave a context on a GPU that it does not choose. So the
// ranks agree for each plan before its first bucket begins: every rank describes its GPU
// (collectives/device/rank_device_info.h), rank 0 sends all descriptions to all, and all ranks make the same
// decision. The first plan that uses the path between GPUs opens the context for it. Rank 0's answers reach all ranks
// in one order, so it is the same plan everywhere.
//
// Threads: the engine's, except for the constructor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/device/device_context.h"
#include "runtime/api/session.h"
#include "runtime/control/component.h"
#include "runtime/gpu/devices.h"

namespace smddp {

class SessionDevices : public Component {
 public:
  // Both outlive it. `wanted` is SMDDP_GPU_STAGE.
  SessionDevices(const Fabric& fabric, Devices& devices, std::string wanted)
      : fabric_(fabric), devices_(devices), wanted_(std::move(wanted)) {}

  // Can tensors of this rank lie on a GPU, and are there other ranks to agree with?
  bool Possible() { return wanted_ != "host" && fabric_.topology.size() > 1 && devices_.Count() > 0; }
  // This rank's device info; `tensors` are those of the plan that have arrived so far.
  Result<std::string> DeviceInfoFor(const std::vector<TensorRef>& tensors);
  // The decision from the ranks' device infos; the first time, begins to open the context.
  Result<DeviceMethod> Decide(const std::vector<std::string>& infos);
  // True: the context is open, or need not be. Do not call it after an error.
  Result<bool> Open();
  bool opening() const { return opening_; }

  // The context of the GPU on which `tensors` lie, made when it is first needed. Null: all are in host memory, and no
  // context exists. An error: they lie on several GPUs.
  Result<DeviceContext*> ContextFor(const std::vector<TensorRef>& tensors);

  void OnFailure(const Status&) override { End(/*failed=*/true); }
  void OnLeave() override { End(/*failed=*/false); }
  void KeepMemory() override {
    if (context_ != nullptr) context_->KeepMemory();
  }
  bool expecting() const override { return opening_; }
  bool polls() const override { return context_ != nullptr && context_->busy(); }

 private:
  Status MakeContext(Device& device);
  void End(bool failed);

  const Fabric& fabric_;
  Devices& devices_;
  const std::string wanted_;
  std::unique_ptr<DeviceContext> context_;
  bool opening_ = false, ended_ = false;
};

}  // namespace smddp
