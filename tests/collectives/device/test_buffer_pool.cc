#include <chrono>
#include <thread>

#include "collectives/device/buffer_pool.h"
#include "native/device.h"

namespace smddp {
namespace {

using Calls = std::vector<std::string>;

Result<bool> Always() { return true; }

// For work on a stream, or for the host.
struct Taken : BufferLease {
  Taken(BufferPool& pool, size_t bytes, std::optional<DeviceStream> stream = std::nullopt) {
    CHECK(Value(pool.Take(this, bytes, stream)));
  }
};

TEST_CASE("buffer pool: a block that is given back is used again, after the work that is on it") {
  NotedDevice device;
  EventPool events(device);
  BufferPool pool(device, BufferPool::Kind::kDevice, Always);
  Taken lease(pool, 100'000, StreamOf(1));
  CHECK(lease.held());
  std::byte* const data = lease.data();
  CHECK(device.calls == Calls{"device 131072"});
  Taken other(pool, 100'000, StreamOf(1));
  CHECK(other.data() != data);
  device.calls.clear();
  lease.GiveBack(Value(events.Mark(StreamOf(1))));
  CHECK_FALSE(lease.held());
  Taken again(pool, 90'000, StreamOf(2));
  CHECK(again.data() == data);
  CHECK(device.calls == Calls{"record 1", "wait 2"});
  again.GiveBack(nullptr);
  device.calls.clear();
  Taken third(pool, 90'000, StreamOf(3));  // its work had ended
  CHECK(third.data() == data);
  CHECK(device.calls.empty());
}

TEST_CASE("buffer pool: the host gets only what no work touches any more") {
  NotedDevice device;
  EventPool events(device);
  BufferPool pool(device, BufferPool::Kind::kPinned, Always);
  Taken lease(pool, 1000);
  std::byte* const data = lease.data();
  CHECK(device.calls == Calls{"pinned 65536"});
  lease.GiveBack(Value(events.Mark(StreamOf(1))));
  Taken other(pool, 1000);
  CHECK(other.data() != data);
  device.done = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than an answer of the GPU is kept
  CHECK(Taken(pool, 1000).data() == data);
}

TEST_CASE("buffer pool: the smallest block that fits is taken, and none that is far too large") {
  NotedDevice device;
  BufferPool pool(device, BufferPool::Kind::kDevice, Always);
  Taken large(pool, 8 << 20, nullptr), small(pool, 3 << 20, nullptr);
  std::byte* const large_data = large.data();
  std::byte* const small_data = small.data();
  large.GiveBack(nullptr);
  small.GiveBack(nullptr);
  Taken fits(pool, 2 << 20, nullptr);
  CHECK(fits.data() == small_data);
  CHECK(Taken(pool, 64 << 10, nullptr).data() != large_data);
}

TEST_CASE("buffer pool: a GPU without memory is an error with advice") {
  NotedDevice device;
  device.full = true;
  BufferPool pool(device, BufferPool::Kind::kDevice, Always), pinned(device, BufferPool::Kind::kPinned, Always);
  BufferLease lease;
  CHECK(Has(pool.Take(&lease, 1, nullptr).status().message(), "set_memory_growth"));
  CHECK(pinned.Take(&lease, 1, std::nullopt).status().message() == "full");
  CHECK(pool.Take(&lease, 1, nullptr).status().reason() == Reason::kNoResources);
}

TEST_CASE("buffer pool: where nothing may be allocated now, a lease is refused and later gets a block of its own") {
  NotedDevice device;
  bool may = false;
  BufferPool pool(device, BufferPool::Kind::kDevice, [&]() -> Result<bool> { return may; });
  BufferLease refused, late;
  CHECK_FALSE(Value(pool.Take(&refused, 1000, nullptr)));
  CHECK_FALSE(refused.held());
  CHECK(device.calls.empty());
  may = true;
  Taken first(pool, 1000, nullptr);
  first.GiveBack(nullptr);
  may = false;
  CHECK_FALSE(Value(pool.Take(&refused, 1000, nullptr)));  // although a block is free now
  may = true;
  device.calls.clear();
  CHECK(Value(pool.Take(&refused, 1000, nullptr)));
  CHECK(device.calls == Calls{"device 65536"});
  may = false;
  CHECK(Value(pool.Take(&late, 1000, nullptr)));  // the first one's
  CHECK(device.calls.size() == 1);
  std::byte* const data = refused.data();
  CHECK(Value(pool.Take(&refused, 1 << 20, nullptr)));  // it holds a block
  CHECK(refused.data() == data);
  for (BufferLease* lease : {&refused, &late}) lease->GiveBack(nullptr);
}

TEST_CASE("buffer pool: an error of the question whether memory may be allocated is the caller's") {
  NotedDevice device;
  BufferPool pool(device, BufferPool::Kind::kDevice,
                  []() -> Result<bool> { return Status(Reason::kInternal, "the GPU is gone"); });
  BufferLease lease;
  CHECK(pool.Take(&lease, 1000, nullptr).status().message() == "the GPU is gone");
  CHECK(device.calls.empty());
}

}  // namespace
}  // namespace smddp
