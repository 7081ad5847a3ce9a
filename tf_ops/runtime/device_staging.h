// Requests matched by name whose tensors lie on a GPU: they go through host memory. Copied down, carried out there like
// any other, copied up. (Gradients of plans have a better way, collectives/device; what is matched by name is small, or
// happens once.)
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "device/work.h"
#include "runtime/running_task.h"
#include "runtime/session.h"

namespace smddp {

class DeviceStaging {
 public:
  explicit DeviceStaging(TaskRunner run) : run_(std::move(run)) {}
  ~DeviceStaging();

  struct Tensors {
    std::vector<TensorRef> tensors;    // all on one GPU
    std::vector<size_t> result_bytes;  // of each output
    bool reads = true;                 // the inputs
    bool writes = true;                // the outputs
  };
  // Makes the request on host tensors of the same shapes; its `done` must be called once, on this thread.
  using OnHost = std::function<void(std::vector<TensorRef> tensors, DoneCallback done)>;
  // `done` comes when the framework's stream waits for the outputs.
  void Begin(const std::string& name, Tensors what, OnHost on_host, DoneCallback done);
  // Leaves the memory to the end of the process: MPI may write into it.
  void KeepMemory() { keep_memory_ = true; }

 private:
  class Copies;
  // Pinned memory; kept for the next request of its size.
  struct Block {
    Device* device = nullptr;
    void* memory = nullptr;
    size_t bytes = 0;
    DeviceEvent last_use = nullptr;  // the copy up; free when it is done
    bool taken = false;
  };
  Result<Block*> Take(Device& device, size_t bytes);
  Result<DeviceStream> StreamOf(Device& device);

  const TaskRunner run_;
  Device* device_ = nullptr;
  DeviceStream stream_ = nullptr;
  bool keep_memory_ = false;
  std::list<Block> blocks_;
};

}  // namespace smddp
