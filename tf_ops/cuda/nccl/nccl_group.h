// An NCCL communicator as a DeviceGroup. It is nonblocking: NCCL's own threads join and launch, and Ready polls their
// progress.
#pragma once

#include <vector>

#include "cuda/nccl/nccl_abi.h"
#include "device/group.h"

namespace smddp {

class NcclGroup final : public DeviceGroup {
 public:
  // `api` and the member's device live as long as the process.
  NcclGroup(const nccl::Api& api, int size, int member, const Device& device)
      : api_(api), size_(size), member_(member), device_(device) {}
  // After a normal end lets NCCL finish what is under way; otherwise as Abort. Waits for either, with a limit.
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Call it once.
  Status Join(const nccl::UniqueId& id);

  Result<bool> Ready() override;
  Status Health() override { return state_ == State::kBusy || state_ == State::kReady ? Look() : CheckReady(); }
  Status Call(const std::vector<GroupCall>& calls, DeviceStream stream) override;
  void Abort() override;

 private:
  enum class State {
    kBusy,  // joining, or NCCL has not completed the last call
    kReady,
    kFailed,  // `failure_` says why
    kEnded,
  };
  // One of several, between ncclGroupStart and ncclGroupEnd.
  nccl::Result Enqueue(const GroupCall& call, DeviceStream stream);
  // OK when a call may be made; otherwise the reason.
  Status CheckReady();
  // Polls NCCL's asynchronous state.
  Status Look();
  // Records what a call has returned.
  Status Called(const char* call, nccl::Result result);

  const nccl::Api& api_;
  const int size_, member_;
  // Current on the thread in every call: NCCL restores the device that a thread had, and creates a context there if
  // there was none.
  const Device& device_;
  nccl::Comm comm_ = nullptr;
  State state_ = State::kBusy;
  const char* call_ = "ncclCommInitRankConfig";  // the last call
  Status failure_;
};

}  // namespace smddp
