// The path of the buckets of plans whose tensors may lie on GPUs: between GPUs, or through host memory; and the
// session's device context for it.
//
// Which GPU a process uses is known when the first tensor on one arrives, not when the session starts: until then the
// program may still choose, and asking CUDA earlier would leave a context on a GPU that it does not choose. So the
// ranks agree for each plan before its first bucket begins: every rank describes its GPU
// (collectives/device/rank_device_info.h), rank 0 sends all descriptions to all, and all ranks make the same
// decision. The first plan that may use the path between GPUs starts it (method_agreement.h), for all. Rank 0's answers
// reach all ranks in one order, so it is the same plan everywhere.
//
// Threads: the engine's, except for the constructor.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/device/device_context.h"
#include "core/env/env.h"
#include "runtime/gpu/devices.h"
#include "runtime/gpu/method_agreement.h"
#include "runtime/named/coordination.h"

namespace smddp {

class DevicePaths : public Component, public VerdictReader {
 public:
  // All but `env` outlive it.
  DevicePaths(ControlBus& bus, const Fabric& fabric, Coordination& coordination, Devices& devices, const Env& env)
      : bus_(bus),
        fabric_(fabric),
        coordination_(coordination),
        devices_(devices),
        agreement_(fabric.topology, coordination, std::min(env.start_timeout_s, kMostStartSeconds)),
        wanted_(env.gpu_stage),
        ranks_share_gpus_(env.ranks_share_gpus) {}
  // `on_agreed` is called with the name of a plan whose buckets may now begin.
  void SetOnAgreed(std::function<void(const std::string& plan)> on_agreed) { on_agreed_ = std::move(on_agreed); }

  // Could tensors of this rank lie on a GPU, and are there other ranks to agree with?
  bool possible() { return wanted_ != "host" && fabric_.topology.size() > 1 && devices_.Count() > 0; }
  // The ranks have to agree on the plan of that name. `asked`: the other ranks have started the agreement, and this
  // one contributes nothing.
  void Expect(const std::string& plan, bool asked);
  // For a plan that so far only other ranks used: this rank takes part in the agreement, unless it is settled.
  void AskAlso(const std::string& plan);
  // Have the ranks agreed on an expected plan? If not, starts the agreement, once, with the tensors of a bucket that
  // `tensors` returns.
  using Tensors = std::function<std::vector<TensorRef>()>;
  bool IsAgreed(const std::string& plan, const Tensors& tensors);
  // The same without starting the agreement.
  bool IsSettled(const std::string& plan) const;
  void Forget(const std::string& plan) { states_.erase(plan); }

  // The reduction of a bucket of which some `tensors` may lie on a GPU. `call.view` outlives the task.
  TaskPtr BeginBucket(const std::string& plan, const AllreduceAlgorithm& rail, const FusedCall& call,
                      const std::vector<TensorRef>& tensors);

  // May memory of the GPU be allocated now, pinned memory too (DeviceContext::MayAllocate)?
  Result<bool> MayAllocate() const { return context_ == nullptr ? true : context_->MayAllocate(); }

  void OnVerdict(const Verdict& verdict) override;
  void Step() override;
  void OnFailure(const Status&) override { End(/*failed=*/true); }
  void OnLeave() override { End(/*failed=*/false); }
  void KeepMemory() override {
    if (context_ != nullptr) context_->KeepMemory();
  }
  bool polls() const override { return opening() || (context_ != nullptr && context_->busy()); }

 private:
  // Where SMDDP_START_TIMEOUT leaves more time, NCCL gets no more: it needs seconds for thousands of ranks.
  static constexpr double kMostStartSeconds = 60;
  // Not asked yet; asked; may use the path between GPUs, which is being started; agreed.
  enum class State { kUnknown, kAsked, kOpening, kHost, kDevice };
  // This rank's device info; `tensors` are those of the plan that have arrived so far.
  Result<std::string> DeviceInfoFor(const std::vector<TensorRef>& tensors);
  // May the plan use the path between GPUs? From the ranks' device infos. The first time it begins to start that path.
  Result<bool> Opens(const std::vector<std::string>& infos);
  // Tells the plans that wait for that path when it is known.
  void Settle();
  bool opening() const { return agreement_.begun() && !agreement_.settled() && !ended_; }
  // The context of the GPU on which `tensors` lie, made when it is first needed. Null: all are in host memory, and no
  // context exists. An error: they lie on several GPUs.
  Result<DeviceContext*> ContextFor(const std::vector<TensorRef>& tensors);
  void End(bool failed);

  ControlBus& bus_;
  const Fabric& fabric_;
  Coordination& coordination_;
  Devices& devices_;
  MethodAgreement agreement_;
  const std::string wanted_;  // SMDDP_GPU_STAGE
  const bool ranks_share_gpus_;
  std::function<void(const std::string& plan)> on_agreed_;
  std::map<std::string, State> states_;  // by plan
  std::unique_ptr<DeviceContext> context_;
  std::set<std::string> told_;  // why a plan has no better method
  bool ended_ = false;
};

}  // namespace smddp
