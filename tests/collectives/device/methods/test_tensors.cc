#include "collectives/device/methods/tensors.h"
#include "native/buckets.h"

namespace smddp {
namespace {

// Memory of the device for a packed bucket.
struct Room {
  Room(DeviceContext& context, int64_t elements) {
    CHECK(Value(context.device_buffers().Take(&lease, elements * sizeof(float), context.streams().pack())));
    data = reinterpret_cast<float*>(lease.data());
  }
  ~Room() { lease.GiveBack(nullptr); }
  std::vector<float> Values(int64_t elements) const { return {data, data + elements}; }
  BufferLease lease;
  float* data = nullptr;
};

TEST_CASE("device tensors: packed after the framework's work, unpacked after the sums and before its next work") {
  ContextAlone alone;
  DeviceBucketOf bucket(*alone.context, alone.device, {5, 1, 700});
  const Room room(*alone.context, 706);
  DeviceTensors tensors(*alone.context, bucket.call);
  REQUIRE(Value(tensors.Reserve()));
  alone.device.late = true;
  const PooledEventPtr packed = Value(tensors.Pack(room.data));
  CHECK_FALSE(Passed(packed));
  alone.device.oldest_first = true;  // the context's streams before the framework's
  alone.device.Run();
  alone.device.oldest_first = false;
  CHECK(Passed(packed));
  CHECK(room.Values(706) == ValuesOf(0, 706));
  // The sums come on a stream that runs behind.
  const DeviceStream reduce = alone.context->streams().reduce();
  CHECK(alone.device
            .Put(reduce,
                 [&] {
                   for (int64_t i = 0; i < 706; ++i) room.data[i] += 1000;
                   return true;
                 })
            .ok());
  const PooledEventPtr sums = Value(alone.context->Mark(reduce));
  const PooledEventPtr end = Value(tensors.Unpack(room.data, *sums));
  CHECK(tensors.HandBack().ok());
  bucket.Read();
  CHECK_FALSE(Passed(end));
  CHECK(bucket.read.empty());
  alone.device.Run();
  CHECK(Passed(end));
  std::vector<float> expected = ValuesOf(0, 706);
  for (float& value : expected) value += 1000;
  CHECK(bucket.read == expected);
}

TEST_CASE("device tensors: pieces in host memory are copied to the GPU and back, and complete when handed back") {
  ContextAlone alone;
  DeviceBucketOf bucket(*alone.context, alone.device, {40, 7, 90}, /*on_host=*/2);
  const Room room(*alone.context, 137);
  DeviceTensors tensors(*alone.context, bucket.call);
  REQUIRE(Value(tensors.Reserve()));
  REQUIRE(tensors.Pack(room.data).ok());
  alone.device.Run();
  CHECK(room.Values(137) == ValuesOf(0, 137));
  CHECK(alone.device.copied == std::vector<size_t>{28, 360});
  for (int64_t i = 0; i < 137; ++i) room.data[i] = static_cast<float>(-i - 1);
  const PooledEventPtr end = Value(tensors.Unpack(room.data, *bucket.framework.Mark()));
  alone.device.Run();
  CHECK(Passed(end));
  CHECK(bucket.tensors[1][0] == ValuesOf(0, 137)[40]);  // not before it is handed back
  REQUIRE(tensors.HandBack().ok());
  const std::vector<float> all = bucket.all();
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == -static_cast<float>(i) - 1);
}

TEST_CASE("device tensors: zeros of a joined rank, whose results nobody needs, are brought and not copied back") {
  ContextAlone alone;
  DeviceBucketOf bucket(*alone.context, alone.device, {20, 30}, /*on_host=*/1);
  std::vector<Piece> pieces = bucket.view->pieces();
  pieces[1].output = nullptr;
  const FusedView view(DType::kFloat32, DType::kFloat32, pieces, {}, {}, CpuCompute());
  bucket.call.call.view = &view;
  const Room room(*alone.context, 50);
  DeviceTensors tensors(*alone.context, bucket.call);
  REQUIRE(Value(tensors.Reserve()));
  const PooledEventPtr packed = Value(tensors.Pack(room.data));
  const size_t copies = alone.device.copied.size();
  REQUIRE(tensors.Unpack(room.data, *packed).ok());
  CHECK(alone.device.copied.size() == copies);
  REQUIRE(tensors.HandBack().ok());
  alone.device.Run();
  CHECK(room.Values(50) == ValuesOf(0, 50));
}

TEST_CASE("device tensors: when the task ends early, the framework still waits for what was begun") {
  ContextAlone alone;
  DeviceBucketOf bucket(*alone.context, alone.device, {50});
  const Room room(*alone.context, 50);
  alone.device.late = true;
  {
    DeviceTensors tensors(*alone.context, bucket.call);
    CHECK(alone.context->busy());
    REQUIRE(Value(tensors.Reserve()));
    REQUIRE(tensors.Pack(room.data).ok());
  }
  CHECK_FALSE(alone.context->busy());
  bucket.framework.Put([&] { bucket.tensors[0].assign(50, 77); });  // its next step overwrites the gradient
  alone.device.Run();
  CHECK(room.Values(50) == ValuesOf(0, 50));
}

TEST_CASE("device tensors: the framework's streams wait once each, whatever the number of tensors") {
  ContextAlone alone;
  DeviceBucketOf bucket(*alone.context, alone.device, {4, 4, 4});
  Framework second(alone.device);
  std::vector<float> other(4, -1);
  second.Compute(other.data(), ValuesOf(9, 4));
  std::vector<Piece> pieces = bucket.view->pieces();
  pieces[2] = {other.data(), other.data(), 4};
  const FusedView view(DType::kFloat32, DType::kFloat32, pieces, {}, {}, CpuCompute());
  bucket.call.call.view = &view;
  bucket.call.works[2] = second.Mark();
  const Room room(*alone.context, 12);
  alone.device.late = true;
  {
    DeviceTensors tensors(*alone.context, bucket.call);
    REQUIRE(Value(tensors.Reserve()));
    REQUIRE(tensors.Pack(room.data).ok());
    alone.device.Run();
    CHECK(std::vector<float>(room.data + 8, room.data + 12) == ValuesOf(9, 4));
    for (int64_t i = 0; i < 12; ++i) room.data[i] = static_cast<float>(50 + i);
    REQUIRE(tensors.Unpack(room.data, *bucket.framework.Mark()).ok());
    REQUIRE(tensors.HandBack().ok());
    std::vector<float> read;
    second.Put([&] { read = other; });
    alone.device.Run();
    CHECK(read == std::vector<float>{58, 59, 60, 61});
  }
  bucket.call.works[2] = nullptr;
}

TEST_CASE("device tensors: an order for each piece is needed, and errors say what was done on which GPU") {
  ContextAlone alone(3);
  DeviceBucketOf bucket(*alone.context, alone.device, {4, 4});
  const Room room(*alone.context, 8);
  DeviceCall one = bucket.call;
  one.works.pop_back();
  CHECK(DeviceTensors(*alone.context, one).Reserve().status().message() ==
        "Expected the order of 2 pieces; received 1.");
  {
    DeviceTensors tensors(*alone.context, bucket.call);
    REQUIRE(Value(tensors.Reserve()));
    alone.device.broken = Status(Reason::kInternal, "the bus is gone");
    CHECK(tensors.Pack(room.data).status().message() == "GPU 3 (Queued), waiting for gradients: the bus is gone");
  }
  alone.device.broken = Status::Ok();
}

}  // namespace
}  // namespace smddp
