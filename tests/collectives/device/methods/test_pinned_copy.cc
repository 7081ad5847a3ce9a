#include "collectives/device/methods/pinned_copy.h"
#include "native/buckets.h"

namespace smddp {
namespace {

constexpr int64_t kPart = (1 << 20) / 4;  // floats that are copied at once

struct Copied {
  explicit Copied(int64_t elements)
      : bucket(parts->fabric(), device, {1}),
        there(ValuesOf(2, elements)),
        copy(*bucket.context, there.data(), elements, DType::kFloat32) {
    device.late = true;
    const PooledEventPtr before = Value(bucket.context->Mark(bucket.framework.stream()));
    REQUIRE(copy.Start(*before).ok());
  }
  const float* host() const { return reinterpret_cast<const float*>(copy.host()); }
  QueuedDevice device;
  const std::unique_ptr<FabricParts> parts = FabricOf(0, {"a"});
  DeviceBucketOf bucket;
  std::vector<float> there;  // on the device
  PinnedCopy copy;
};

TEST_CASE("pinned copy: a range is ready when all its parts are on the host") {
  Copied copied(2 * kPart + 5);
  CHECK(copied.device.copied == std::vector<size_t>{4 * kPart, 4 * kPart, 20});
  CHECK_FALSE(Value(copied.copy.Ready({0, 1})));
  copied.device.Run();
  CHECK(Value(copied.copy.Ready({kPart - 1, kPart + 1})));
  CHECK(Value(copied.copy.Ready({0, 2 * kPart + 5})));
  CHECK(std::equal(copied.there.begin(), copied.there.end(), copied.host()));
  CHECK((Value(copied.copy.Finish()) != nullptr));
}

TEST_CASE("pinned copy: a part returns when all of it is done") {
  Copied copied(kPart + 30);
  copied.device.Run();
  REQUIRE(Value(copied.copy.Ready({0, kPart + 30})));
  auto* const host = reinterpret_cast<float*>(copied.copy.host());
  for (int64_t i = 0; i < kPart + 30; ++i) host[i] = static_cast<float>(-1 - i);
  copied.device.copied.clear();
  CHECK(copied.copy.Done({0, 10}).ok());
  CHECK(copied.device.copied.empty());
  CHECK(copied.copy.Done({10, kPart + 10}).ok());  // the rest of the first, and some of the second
  CHECK(copied.device.copied == std::vector<size_t>{4 * kPart});
  CHECK(copied.copy.Done({kPart + 10, kPart + 30}).ok());
  CHECK(copied.device.copied == std::vector<size_t>{4 * kPart, 120});
  const PooledEventPtr up = Value(copied.copy.Finish());
  CHECK_FALSE(Value(up->Passed()));
  CHECK(copied.there == ValuesOf(2, kPart + 30));
  copied.device.Run();
  CHECK(Value(up->Passed()));
  for (const int64_t i : {int64_t{0}, kPart - 1, kPart, kPart + 29}) CHECK(copied.there[i] == -1.0f - i);
}

TEST_CASE("pinned copy: an error names the GPU and the direction") {
  Copied copied(8);
  copied.device.Run();
  copied.device.broken = Status(Reason::kInternal, "lost");
  CHECK(Begins(copied.copy.Ready({0, 8}).status().message(), "GPU 0 (Queued), copying gradients to the host: "));
  CHECK(Begins(copied.copy.Done({0, 8}).message(), "GPU 0 (Queued), copying sums to the GPU: "));
  copied.device.broken = Status::Ok();
  CHECK(copied.copy.Finish().ok());
}

}  // namespace
}  // namespace smddp
