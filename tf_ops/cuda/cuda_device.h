// Device over the CUDA runtime.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "cuda/driver.h"
#include "cuda/kernels/jobs.h"
#include "device/device.h"

namespace smddp {

class CudaDevice : public Device {
 public:
  // Creates the device's primary context unless the framework has; loads the kernels.
  static Result<std::unique_ptr<CudaDevice>> Open(int index);

  const DeviceInfo& info() const override { return info_; }
  // Runs `call` with this device as the calling thread's current one.
  void RunCurrent(const std::function<void()>& call) const {
    const Current current(*this);
    call();
  }

  Result<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  Result<void*> AllocatePinned(size_t bytes) override;
  void FreePinned(void* memory) override;

  Result<DeviceStream> MakeStream() override;
  void DestroyStream(DeviceStream stream) override;
  Result<DeviceEvent> MakeEvent() override;
  void DestroyEvent(DeviceEvent event) override;
  Status Record(DeviceEvent event, DeviceStream stream) override;
  Status Wait(DeviceStream stream, DeviceEvent event) override;
  Result<bool> Done(DeviceEvent event) override;

  Status Copy(void* to, const void* from, size_t bytes, DeviceStream stream) override;
  Status Pack(const FusedView& view, Range range, void* into, DeviceStream stream) override;
  Status Unpack(const FusedView& view, Range range, const void* from, DeviceStream stream) override;

 private:
  CudaDevice(DeviceInfo info, const Driver& driver, CUcontext context, int priority)
      : info_(std::move(info)), driver_(driver), context_(context), priority_(priority) {}

  // Makes this device the calling thread's current one during the object's life, then restores the previous one. It
  // uses contexts: selecting the previous device by number could create a context there.
  class Current {
   public:
    explicit Current(const CudaDevice& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaDevice& device_;
    CUcontext before_ = nullptr;
  };

  Status LaunchAll(const std::vector<MoveJob>& jobs, DeviceStream stream) const;

  const DeviceInfo info_;
  const Driver& driver_;
  const CUcontext context_;
  const int priority_;
};

}  // namespace smddp
