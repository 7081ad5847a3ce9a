// A bucket's tensors, on the framework's side: their order with its streams, packing, unpacking, and the pieces that
// lie in host memory (a joined rank's zeros, a gradient that was computed on the CPU), which go by way of the GPU.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/device_context_impl.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's. Destroyed before HandBack, it still puts what the framework does next after what was begun.
class DeviceTensors {
 public:
  DeviceTensors(DeviceContextImpl& context, const DeviceCall& call);
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  // Packs all of the bucket, after what the framework did. `into` was taken for the stream of packing.
  Result<PooledEventPtr> Pack(void* into);
  // Unpacks a part of the bucket, after `sums`; null: they are there.
  Status Unpack(Range range, const void* from, const PooledEvent* sums);
  // All parts were unpacked: what the framework does next comes after that. Returns when that is.
  Result<PooledEventPtr> HandBack();
  // After HandBack: are the results of pieces in host memory there?
  Result<bool> HostPiecesDone();

 private:
  struct HostPiece {
    Piece piece;
    size_t offset, bytes;  // in `host_` and `scratch_`
  };

  Status FindHostPieces(std::vector<Piece>* pieces);
  Status HandBackAfter(const PooledEvent& event) const;
  void ForEachWork(const std::function<void(const DeviceWork&)>& visit) const;

  DeviceContextImpl& context_;
  const FusedView& view_;
  const std::vector<std::shared_ptr<const DeviceWork>> works_;
  std::vector<HostPiece> host_pieces_;
  BufferLease host_, scratch_;      // of the host pieces, there and on the device
  std::unique_ptr<FusedView> all_;  // the bucket, all of it on the device
  PooledEventPtr end_;
  bool begun_ = false, handed_back_ = false;
};

}  // namespace smddp
