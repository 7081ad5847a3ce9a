// Events that are used again: none is made for a gradient or a bucket after the first steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace smddp {

class PooledEvent;
using PooledEventPtr = std::shared_ptr<const PooledEvent>;

// Marks points in the order of streams.
//
// Threads:   any.
// Ownership: outlives its events; the device outlives it.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}
  ~EventPool();

  Result<PooledEventPtr> Mark(DeviceStream stream);

 private:
  friend class PooledEvent;
  static constexpr int64_t kAskEveryNs = 10 * 1000;
  // The marks of a stream are numbered from 1, and the GPU passes them in this order.
  struct Stream {
    DeviceStream handle = nullptr;
    uint64_t marked = 0;
    std::atomic<uint64_t> passed = 0;
    uint64_t awaited = 0;  // had not been passed when the GPU was asked last
    int64_t asked_ns = 0;  // when that was; 0: no mark is known to be ahead
  };

  Device& device_;
  std::mutex mutex_;
  std::vector<DeviceEvent> free_;
  std::map<DeviceStream, Stream> streams_;
};

// Everything that a stream held when it was marked: one of the engine's, or a framework's, whose tensors may be used
// after it. The event returns to the pool when the last holder releases it.
class PooledEvent {
 public:
  PooledEvent(EventPool& home, DeviceEvent event, EventPool::Stream& stream)
      : home_(home), event_(event), stream_(stream), number_(++stream.marked) {}
  ~PooledEvent();
  PooledEvent(const PooledEvent&) = delete;
  PooledEvent& operator=(const PooledEvent&) = delete;

  Device& device() const { return home_.device_; }
  DeviceStream stream() const { return stream_.handle; }
  // Has the GPU passed it? The GPU is asked about one mark of a stream, the first that is waited for, and not more
  // often than every 10 us: so "no" may be that old.
  Result<bool> Passed() const;
  // Work put on `stream` from now on runs after it.
  Status MakeWait(DeviceStream stream) const;

 private:
  friend class EventPool;

  EventPool& home_;
  const DeviceEvent event_;
  EventPool::Stream& stream_;
  const uint64_t number_;
};

}  // namespace smddp
