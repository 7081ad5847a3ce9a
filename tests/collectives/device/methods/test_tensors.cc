#include "collectives/device/methods/tensors.h"
#include "native/buckets.h"

namespace smddp {
namespace {

// Memory of the device for a packed bucket.
struct Room {
  Room(DeviceBucketOf& bucket, int64_t elements)
      : lease(Value(bucket.context->device_buffers().Take(elements * sizeof(float), bucket.context->streams().pack()))),
        data(reinterpret_cast<float*>(lease.data())) {}
  std::vector<float> Values(int64_t elements) const { return {data, data + elements}; }
  BufferLease lease;
  float* const data;
};

TEST_CASE("device tensors: packed after the framework's work, unpacked before its next") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a"});
  DeviceBucketOf bucket(parts->fabric(), device, {5, 1, 700});
  Room room(bucket, 706);
  DeviceTensors tensors(*bucket.context, bucket.call);
  const PooledEventPtr packed = Value(tensors.Pack(room.data));
  device.late = true;
  CHECK_FALSE(Value(packed->Passed()));
  device.Run();
  CHECK(Value(packed->Passed()));
  CHECK(room.Values(706) == ValuesOf(0, 706));
  // The sums come on a stream that runs behind.
  const DeviceStream reduce = bucket.context->streams().reduce();
  CHECK(device
            .Put(reduce,
                 [&] {
                   for (int64_t i = 0; i < 706; ++i) room.data[i] += 1000;
                   return true;
                 })
            .ok());
  const PooledEventPtr sums = Value(bucket.context->Mark(reduce));
  CHECK(tensors.Unpack({0, 300}, room.data, sums.get()).ok());
  CHECK(tensors.Unpack({300, 706}, room.data + 300, nullptr).ok());
  const PooledEventPtr end = Value(tensors.End());
  CHECK(tensors.HandBack().ok());
  bucket.Read();
  CHECK_FALSE(Value(end->Passed()));
  CHECK(bucket.read.empty());
  device.Run();
  CHECK(Value(end->Passed()));
  CHECK(bucket.read == [] {
    std::vector<float> values = ValuesOf(0, 706);
    for (float& value : values) value += 1000;
    return values;
  }());
  CHECK(Value(tensors.HostPiecesDone()));
  room.lease.GiveBack(nullptr);
}

TEST_CASE("device tensors: pieces in host memory are complete when the host is told so") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a"});
  DeviceBucketOf bucket(parts->fabric(), device, {40, 7, 90}, /*on_host=*/2);
  Room room(bucket, 137);
  DeviceTensors tensors(*bucket.context, bucket.call);
  REQUIRE(tensors.Pack(room.data).ok());
  device.Run();
  CHECK(room.Values(137) == ValuesOf(0, 137));
  for (int64_t i = 0; i < 137; ++i) room.data[i] = static_cast<float>(-i - 1);
  device.late = true;
  REQUIRE(tensors.Unpack({0, 137}, room.data, nullptr).ok());
  REQUIRE(tensors.End().ok());
  REQUIRE(tensors.HandBack().ok());
  CHECK_FALSE(Value(tensors.HostPiecesDone()));
  CHECK(bucket.tensors[1][0] == ValuesOf(0, 137)[40]);
  device.Run();
  CHECK(Value(tensors.HostPiecesDone()));
  const std::vector<float> all = bucket.all();
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == -static_cast<float>(i) - 1);
  room.lease.GiveBack(nullptr);
}

TEST_CASE("device tensors: when the task ends early, the framework still waits for what was begun") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a"});
  DeviceBucketOf bucket(parts->fabric(), device, {50});
  Room room(bucket, 50);
  {
    DeviceTensors tensors(*bucket.context, bucket.call);
    CHECK(bucket.context->busy());
    REQUIRE(tensors.Pack(room.data).ok());
  }
  CHECK_FALSE(bucket.context->busy());
  bucket.framework.Put([&] { bucket.tensors[0].assign(50, 77); });  // its next step overwrites the gradient
  device.Run();
  CHECK(room.Values(50) == ValuesOf(0, 50));
  room.lease.GiveBack(nullptr);
}

TEST_CASE("device tensors: an order for each piece is needed, and errors say what was done on which GPU") {
  QueuedDevice device(3);
  const auto parts = FabricOf(0, {"a"});
  DeviceBucketOf bucket(parts->fabric(), device, {4, 4});
  Room room(bucket, 8);
  DeviceCall one = bucket.call;
  one.works.pop_back();
  CHECK(DeviceTensors(*bucket.context, one).Pack(room.data).status().message() ==
        "Expected the order of 2 pieces; received 1.");
  {
    DeviceTensors tensors(*bucket.context, bucket.call);
    device.broken = Status(Reason::kInternal, "the bus is gone");
    const Status status = tensors.Pack(room.data).status();
    CHECK(status.message() == "GPU 3 (Queued), waiting for gradients: the bus is gone");
  }
  device.broken = Status::Ok();
  room.lease.GiveBack(nullptr);
}

}  // namespace
}  // namespace smddp
