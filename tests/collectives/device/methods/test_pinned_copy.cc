#include "collectives/device/methods/pinned_copy.h"
#include "native/buckets.h"

namespace smddp {
namespace {

constexpr int64_t kPart = (1 << 20) / 4;  // floats that are copied at once

struct Copied {
  explicit Copied(int64_t elements)
      : there(ValuesOf(2, elements)), copy(*alone.context, there.data(), elements, DType::kFloat32) {
    device.late = true;
    REQUIRE(Value(copy.Reserve()));
    REQUIRE(copy.Start(*framework.Mark()).ok());
  }
  ~Copied() {
    device.late = false;
    device.Run();  // while the memory is there
  }
  const float* host() const { return reinterpret_cast<const float*>(copy.host()); }
  ContextAlone alone;
  QueuedDevice& device = alone.device;
  Framework framework{device};
  std::vector<float> there;  // on the device
  PinnedCopy copy;
};

// Longer than an answer of the GPU is kept.
void LetTimePass() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

TEST_CASE("pinned copy: a range is ready when all its parts are on the host") {
  Copied copied(2 * kPart + 5);
  CHECK(copied.device.copied == std::vector<size_t>{4 * kPart, 4 * kPart, 20});
  CHECK_FALSE(Value(copied.copy.Ready({0, 1})));
  copied.device.Run();
  LetTimePass();
  CHECK(Value(copied.copy.Ready({kPart - 1, kPart + 1})));
  CHECK(Value(copied.copy.Ready({0, 2 * kPart + 5})));
  CHECK(std::equal(copied.there.begin(), copied.there.end(), copied.host()));
  CHECK((Value(copied.copy.Finish()) != nullptr));
}

TEST_CASE("pinned copy: the copies come after what they copy") {
  Copied copied(8);
  CHECK_FALSE(Value(copied.copy.Ready({0, 8})));
  ContextAlone other;
  Framework framework(other.device);
  std::vector<float> computed(8, -1);
  other.device.late = other.device.oldest_first = true;  // the context's streams before the framework's
  framework.Compute(computed.data(), ValuesOf(5, 8));
  PinnedCopy copy(*other.context, computed.data(), 8, DType::kFloat32);
  REQUIRE(Value(copy.Reserve()));
  REQUIRE(copy.Start(*framework.Mark()).ok());
  other.device.Run();
  const auto* const host = reinterpret_cast<const float*>(copy.host());
  CHECK(std::vector<float>(host, host + 8) == ValuesOf(5, 8));
  CHECK(copy.Finish().ok());
  other.device.late = false;
  other.device.Run();
}

TEST_CASE("pinned copy: a part returns when all of it is done") {
  Copied copied(kPart + 30);
  copied.device.Run();
  LetTimePass();
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
  CHECK_FALSE(Passed(up));
  CHECK(copied.there == ValuesOf(2, kPart + 30));
  copied.device.Run();
  CHECK(Passed(up));
  for (const int64_t i : {int64_t{0}, kPart - 1, kPart, kPart + 29}) CHECK(copied.there[i] == -1.0f - i);
}

TEST_CASE("pinned copy: the memory is used again when the copies back have run") {
  Copied copied(100);
  std::byte* const first = copied.copy.host();
  copied.device.Run();
  LetTimePass();
  CHECK(Value(copied.copy.Ready({0, 100})));
  CHECK(copied.copy.Done({0, 100}).ok());
  CHECK(copied.copy.Finish().ok());
  PinnedCopy next(*copied.alone.context, copied.there.data(), 100, DType::kFloat32);
  REQUIRE(Value(next.Reserve()));
  CHECK(next.host() == first);
  // The next copy down waits for the copy up.
  auto* const host = reinterpret_cast<float*>(first);
  std::fill(host, host + 100, 8.0f);
  REQUIRE(next.Start(*copied.framework.Mark()).ok());
  copied.device.Run();
  CHECK(copied.there == std::vector<float>(100, 8));
  CHECK(next.Finish().ok());
  copied.device.Run();
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
