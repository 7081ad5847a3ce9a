// Device memory that is reduced on the host: copied to pinned memory part by part; each part can be used as soon as
// its copy is complete. The results are copied back when all parts are done. Both copies use the copy engines, in
// parallel with kernels.
#pragma once

#include <vector>

#include "collectives/device/device_context.h"
#include "collectives/gate.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's; the device memory is the caller's and must live until Finish's event has passed.
class PinnedCopy : public ChunkGate {
 public:
  PinnedCopy(DeviceContext& context, void* device, int64_t elements, DType dtype);

  // Takes the pinned memory. False: there is none yet (BufferPool).
  Result<bool> Reserve() { return context_.pinned_buffers().Take(&host_, Bytes(elements_), context_.streams().down()); }
  // Starts the copies, after `there`, into the pinned memory.
  Status Start(const PooledEvent& there);
  std::byte* host() const { return host_.data(); }
  Result<bool> Ready(Range range) override;
  Status Done(Range range) override;
  // Call it when all elements are done. The event marks their return to the device.
  Result<PooledEventPtr> Finish();

 private:
  // Large enough for a copy engine's full speed, small against a bucket.
  static constexpr size_t kPartBytes = 1 << 20;
  struct Part {
    Range range;
    PooledEventPtr down;
    int64_t left;  // elements that are not done
  };

  template <class Visit>
  Status ForEachPart(Range range, Visit visit);
  size_t Bytes(int64_t elements) const { return static_cast<size_t>(elements) * SizeOf(dtype_); }

  DeviceContext& context_;
  std::byte* const device_;
  const int64_t elements_;
  const DType dtype_;
  const int64_t each_;  // elements of a part
  BufferLease host_;
  std::vector<Part> parts_;
};

}  // namespace smddp
