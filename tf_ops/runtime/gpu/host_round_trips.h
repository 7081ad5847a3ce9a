// Requests matched by name whose tensors lie on a GPU: copied to host memory, executed there like any other request,
// and copied back. (Gradients of plans have a faster path, collectives/device; requests matched by name are small, or
// rare.)
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device/buffer_pool.h"
#include "device/events.h"
#include "runtime/control/component.h"

namespace smddp {

class HostRoundTrips : public Component {
 public:
  // `may_allocate`: asked before pinned memory is allocated.
  explicit HostRoundTrips(ControlBus& bus, BufferPool::MayAllocate may_allocate)
      : bus_(bus), may_allocate_(std::move(may_allocate)) {}

  struct Tensors {
    std::vector<TensorRef> tensors;    // all on one GPU
    std::vector<size_t> result_bytes;  // of each output
  };
  // Makes the request on host tensors of the same shapes; its `done` must be called once, on this thread.
  using OnHost = std::function<void(std::vector<TensorRef> tensors, DoneCallback done)>;
  // `done` is called when the framework's stream waits for the outputs.
  void Begin(const std::string& name, Tensors what, OnHost on_host, DoneCallback done);
  // When the oldest unfinished request began; kNever when there is none.
  int64_t OldestNs() const override { return begun_ns_.empty() ? kNever : *begun_ns_.begin(); }
  // Keeps the memory until the process ends: MPI may write into it.
  void KeepMemory() override;

 private:
  struct Gpu;
  class Copies;
  Result<std::shared_ptr<Gpu>> Of(Device& device);

  ControlBus& bus_;
  const BufferPool::MayAllocate may_allocate_;
  std::shared_ptr<Gpu> gpu_;         // of all requests so far
  std::multiset<int64_t> begun_ns_;  // of the requests under way
};

}  // namespace smddp
