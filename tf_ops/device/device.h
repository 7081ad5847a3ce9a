// A GPU as the engine uses it: memory, streams, events, and copies in the order of a stream. Implemented
// in cuda/, and in host memory by the tests (tests/fake_gpu).
//
// Threads:   any, for all methods. No method waits for the GPU, except those that create and destroy memory, streams
//            and events, which may; after the first training step these are not called any more.
// Errors:    kNoResources where memory is insufficient; otherwise kInternal with the name of the call and the
//            driver's message. An error of a kernel is reported by a later call, usually `Done`.
// Ownership: what a device has made is given back to the same device. A device lives as long as the process.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "compute/fused_view.h"
#include "core/status.h"

namespace smddp {

// The platform's own handles: cudaStream_t, cudaEvent_t. Null is the default stream.
using DeviceStream = void*;
using DeviceEvent = void*;

struct DeviceInfo {
  int index = 0;       // as this process counts
  std::string name;    // "NVIDIA H200"
  std::string uuid;    // of the physical device, the same in all processes
  std::string bus_id;  // "0000:3B:00.0", for users
  int processors = 0;  // streaming multiprocessors
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Runs `call` with this device as the calling thread's current one.
  virtual void RunCurrent(const std::function<void()>& call) const = 0;

  // --- Memory. Aligned to 256 bytes. ---
  virtual Result<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Host memory that the copy engines can access directly.
  virtual Result<void*> AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // --- Order. A stream executes its work in sequence; events order streams relative to each other. ---
  virtual Result<DeviceStream> MakeStream() = 0;
  virtual void DestroyStream(DeviceStream stream) = 0;
  virtual Result<DeviceEvent> MakeEvent() = 0;
  virtual void DestroyEvent(DeviceEvent event) = 0;
  // `event` marks everything that `stream` holds now.
  virtual Status Record(DeviceEvent event, DeviceStream stream) = 0;
  // Work put on `stream` from now on runs after the last recording of `event`. The host does not wait.
  virtual Status Wait(DeviceStream stream, DeviceEvent event) = 0;
  // Has the GPU passed it? True for an event that was never recorded.
  virtual Result<bool> Done(DeviceEvent event) = 0;

  // --- Work, in the order of `stream`. ---

  // Copies between any two of device, pinned and pageable memory; the host may wait where pageable memory is involved.
  virtual Status Copy(void* to, const void* from, size_t bytes, DeviceStream stream) = 0;

  // As FusedView::Pack and Unpack, for a view on device memory and a packed part in device (or pinned) memory, bit
  // for bit. Floating dtypes with any conversion, other dtypes as plain copies. The view need not outlive the call.
  virtual Status Pack(const FusedView& view, Range range, void* into, DeviceStream stream) = 0;
  virtual Status Unpack(const FusedView& view, Range range, const void* from, DeviceStream stream) = 0;
};

}  // namespace smddp
