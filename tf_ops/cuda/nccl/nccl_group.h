// A communicator of NCCL as a DeviceGroup. It is one that does not block: NCCL's own threads join and launch, and
// Ready asks how far they are.
#pragma once

#include <functional>

#include "cuda/nccl/nccl_abi.h"
#include "device/group.h"

namespace smddp {

class NcclGroup final : public DeviceGroup {
 public:
  // Runs `call` while the member's device is the thread's: NCCL puts threads back on the device that they had, and
  // where that is none of theirs, makes a context there.
  using OnDevice = std::function<void(const std::function<void()>& call)>;
  // `api` lives as long as the process.
  NcclGroup(const nccl::Api& api, int size, int member, OnDevice on_device)
      : api_(api), size_(size), member_(member), on_device_(std::move(on_device)) {}
  // In peace lets NCCL finish what is under way; otherwise as Abort. Waits for either, but not for ever.
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Once.
  Status Join(const nccl::UniqueId& id);

  Result<bool> Ready() override;
  Status Health() override;
  Status ReduceScatter(void* into, const void* from, int64_t each, DType dtype, DeviceStream stream) override;
  Status Allgather(void* into, const void* from, int64_t each, DType dtype, DeviceStream stream) override;
  void Abort() override;

 private:
  enum class State {
    kBusy,  // joining, or NCCL still works on the last call
    kReady,
    kFailed,  // `failure_` says why
    kEnded,
  };
  // May a call be made? An error says why not.
  Status CheckReady();
  // Asks NCCL how it is.
  Status Look();
  // Takes over what a call has returned.
  Status Called(const char* call, nccl::Result result);

  const nccl::Api& api_;
  const int size_, member_;
  const OnDevice on_device_;
  nccl::Comm comm_ = nullptr;
  State state_ = State::kBusy;
  const char* call_ = "ncclCommInitRankConfig";  // the last
  Status failure_;
};

}  // namespace smddp
