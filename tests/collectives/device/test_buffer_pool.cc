#include <chrono>
#include <thread>

#include "collectives/device/buffer_pool.h"
#include "native/device.h"

namespace smddp {
namespace {

using Calls = std::vector<std::string>;

TEST_CASE("buffer pool: a block that is given back is used again, after the work that is on it") {
  NotedDevice device;
  EventPool events(device);
  BufferPool pool(device, BufferPool::Kind::kDevice);
  BufferLease lease = Value(pool.Take(100'000, StreamOf(1)));
  CHECK(lease.held());
  std::byte* const data = lease.data();
  CHECK(device.calls == Calls{"device 131072"});
  BufferLease other = Value(pool.Take(100'000, StreamOf(1)));
  CHECK(other.data() != data);
  device.calls.clear();
  lease.GiveBack(Value(events.Mark(StreamOf(1))));
  CHECK_FALSE(lease.held());
  BufferLease again = Value(pool.Take(90'000, StreamOf(2)));
  CHECK(again.data() == data);
  CHECK(device.calls == Calls{"record 1", "wait 2"});
  again.GiveBack(nullptr);
  device.calls.clear();
  BufferLease third = Value(pool.Take(90'000, StreamOf(3)));  // its work had ended
  CHECK(third.data() == data);
  CHECK(device.calls.empty());
}

TEST_CASE("buffer pool: the host gets only what no work touches any more") {
  NotedDevice device;
  EventPool events(device);
  BufferPool pool(device, BufferPool::Kind::kPinned);
  BufferLease lease = Value(pool.TakeForHost(1000));
  std::byte* const data = lease.data();
  CHECK(device.calls == Calls{"pinned 65536"});
  lease.GiveBack(Value(events.Mark(StreamOf(1))));
  BufferLease other = Value(pool.TakeForHost(1000));
  CHECK(other.data() != data);
  device.done = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than an answer of the GPU is kept
  CHECK(Value(pool.TakeForHost(1000)).data() == data);
}

TEST_CASE("buffer pool: the smallest block that fits is taken, and none that is far too large") {
  NotedDevice device;
  BufferPool pool(device, BufferPool::Kind::kDevice);
  BufferLease large = Value(pool.Take(8 << 20, nullptr)), small = Value(pool.Take(3 << 20, nullptr));
  std::byte* const large_data = large.data();
  std::byte* const small_data = small.data();
  large.GiveBack(nullptr);
  small.GiveBack(nullptr);
  BufferLease fits = Value(pool.Take(2 << 20, nullptr));
  CHECK(fits.data() == small_data);
  CHECK(Value(pool.Take(64 << 10, nullptr)).data() != large_data);
}

TEST_CASE("buffer pool: a GPU without memory is an error with advice") {
  NotedDevice device;
  device.full = true;
  BufferPool pool(device, BufferPool::Kind::kDevice), pinned(device, BufferPool::Kind::kPinned);
  CHECK(Has(pool.Take(1, nullptr).status().message(), "set_memory_growth"));
  CHECK(pinned.TakeForHost(1).status().message() == "full");
  CHECK(pool.Take(1, nullptr).status().reason() == Reason::kNoResources);
}

}  // namespace
}  // namespace smddp
