// Device over the driver.
#pragma once

#include <memory>
#include <vector>

#include "cuda/driver.h"
#include "cuda/kernel_images.h"
#include "cuda/kernels/jobs.h"
#include "device/device.h"

namespace smddp {

class CudaDevice : public Device {
 public:
  // Creates the device's primary context unless the framework has; loads the kernels of `image`.
  static Result<std::unique_ptr<CudaDevice>> Open(const Driver& driver, int index, const KernelImage& image);

  const DeviceInfo& info() const override { return info_; }
  void RunCurrent(const std::function<void()>& call) const override {
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

  // Makes the context current on the calling thread during the object's life, then restores the previous one.
  class Current {
   public:
    Current(const Driver& driver, CUcontext context);
    explicit Current(const CudaDevice& device) : Current(device.driver_, device.context_) {}
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    const CUcontext context_;
    CUcontext before_ = nullptr;
  };

  // Loads all kernels: otherwise each would be loaded at its first launch, which may wait for everything that runs
  // there.
  Status LoadKernels(const KernelImage& image);
  Status LaunchAll(const std::vector<MoveJob>& jobs, DeviceStream stream) const;

  const DeviceInfo info_;
  const Driver& driver_;
  const CUcontext context_;
  const int priority_;
  static constexpr int kElements = 8;
  CUfunction kernels_[kElements][kElements] = {};  // by Element: to, from
};

}  // namespace smddp
