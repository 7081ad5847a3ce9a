// A bucket's tensors on the framework's side: their order with its streams, packing, unpacking. Pieces in host memory
// (a joined rank's zeros, a gradient that was computed on the CPU) are copied to the GPU and back.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/device_context.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's. When destroyed before HandBack, it still orders the framework's next work after what was
//            begun.
class DeviceTensors {
 public:
  DeviceTensors(DeviceContext& context, const DeviceCall& call);
  ~DeviceTensors();

  // Takes the memory for pieces in host memory. False: there is none yet (BufferPool).
  Result<bool> Reserve();
  // When it is reserved: packs all of the bucket, after the framework's work. `into` was allocated for the packing
  // stream.
  Result<PooledEventPtr> Pack(void* into);
  // Unpacks the bucket after `sums`. Returns the event that marks it.
  Result<PooledEventPtr> Unpack(const void* from, const PooledEvent& sums);
  // When Unpack's event has passed: hands results in host memory over, and orders the framework's next work after the
  // event. The framework has one stream for everything: what it puts there from now on waits, the rest of the backward
  // pass too, so the event must not depend on another rank any more.
  Status HandBack();

 private:
  struct HostPiece {
    size_t index;          // among the view's pieces
    size_t offset, bytes;  // in `host_` and `scratch_`
  };

  Status BringHostPieces(std::vector<Piece>* pieces);
  Status HandBackAfter(const PooledEvent& event) const;

  DeviceContext& context_;
  const FusedView& view_;
  const std::vector<std::shared_ptr<const PooledEvent>> works_;
  std::vector<HostPiece> host_pieces_;
  BufferLease host_, scratch_;      // host pieces: in pinned memory and on the device
  std::unique_ptr<FusedView> all_;  // the bucket, all of it on the device
  PooledEventPtr end_;
  bool begun_ = false, handed_back_ = false;
};

}  // namespace smddp
