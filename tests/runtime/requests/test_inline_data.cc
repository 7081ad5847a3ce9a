#include <cstring>

#include "native/testing.h"
#include "runtime/requests/inline_data.h"

namespace smddp {
namespace {

template <class T>
std::unique_ptr<FusedView> ViewOf(std::vector<T>* data, DType dtype, Scaling after = {}) {
  const std::vector<Piece> pieces = {{data->data(), data->data(), static_cast<int64_t>(data->size())}};
  return std::make_unique<FusedView>(dtype, dtype, pieces, Scaling(), after, CpuCompute());
}

Announcement AnnouncementOf(const std::string& data, ReduceOp op = ReduceOp::kSum) {
  Announcement announcement;
  announcement.kind = RequestKind::kAllreduce;
  announcement.name = "x";
  announcement.tensors = {{DType::kUInt8, {3}}, {DType::kFloat32, {2}}};
  announcement.op = op;
  announcement.data = data;
  return announcement;
}

// Three bytes and two floats of a rank, packed.
struct Contribution {
  explicit Contribution(int rank)
      : bytes{static_cast<uint8_t>(rank + 1), 2, 3}, floats{rank + 0.5f, static_cast<float>(10 * rank)} {
    views.push_back(ViewOf(&bytes, DType::kUInt8));
    views.push_back(ViewOf(&floats, DType::kFloat32));
  }
  std::vector<uint8_t> bytes;
  std::vector<float> floats;
  FusedViews views;
};

TEST_CASE("inline data: contributions are packed, summed by rank, and unpacked") {
  Contribution ranks[] = {Contribution(0), Contribution(1), Contribution(2)};
  std::map<int, Announcement> by_rank;
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(FitsInMessage(ranks[rank].views, ReduceOp::kSum));
    by_rank[rank] = AnnouncementOf(PackAll(ranks[rank].views));
    CHECK(by_rank[rank].data.size() == 12);  // the floats are aligned
  }
  const std::string sum = Value(ReduceInline(by_rank, CpuCompute()));
  CHECK(UnpackAll(ranks[1].views, sum).ok());
  CHECK(ranks[1].bytes == std::vector<uint8_t>{6, 6, 9});
  CHECK(ranks[1].floats == std::vector<float>{4.5, 30});
  by_rank[0].op = ReduceOp::kMax;
  CHECK(UnpackAll(ranks[0].views, Value(ReduceInline(by_rank, CpuCompute()))).ok());
  CHECK(ranks[0].bytes == std::vector<uint8_t>{3, 2, 3});
  CHECK(ranks[0].floats == std::vector<float>{2.5, 20});
}

TEST_CASE("inline data: an average is divided where it is unpacked") {
  std::vector<float> data = {4, 8};
  FusedViews views;
  views.push_back(ViewOf(&data, DType::kFloat32, {1.0, 2}));
  Announcement announcement = AnnouncementOf(PackAll(views), ReduceOp::kAverage);
  announcement.tensors = {{DType::kFloat32, {2}}};
  CHECK(UnpackAll(views, Value(ReduceInline({{0, announcement}, {1, announcement}}, CpuCompute()))).ok());
  CHECK(data == std::vector<float>{4, 8});
}

TEST_CASE("inline data: lengths of other ranks are checked") {
  Contribution mine(0);
  const std::string data = PackAll(mine.views);
  const auto reduced = [&](const std::string& theirs) {
    return ReduceInline({{0, AnnouncementOf(data)}, {1, AnnouncementOf(theirs)}}, CpuCompute()).status();
  };
  CHECK(reduced(data).ok());
  CHECK(Has(reduced(data + "x").message(), "'x' of rank 1: expected 12 bytes, received 13"));
  CHECK_FALSE(reduced("").ok());
  CHECK_FALSE(UnpackAll(mine.views, data + "x").ok());
  Announcement large = AnnouncementOf(data);
  large.tensors[1].shape = {1000};
  CHECK_FALSE(ReduceInline({{0, large}}, CpuCompute()).ok());
}

TEST_CASE("inline data: what does not fit into a message") {
  std::vector<float> most(kMaxInlineBytes / 4), more(kMaxInlineBytes / 4 + 1), none;
  const auto fits = [](std::vector<float>* data, DType dtype, ReduceOp op) {
    FusedViews views;
    views.push_back(ViewOf(data, dtype));
    return FitsInMessage(views, op);
  };
  CHECK(fits(&most, DType::kFloat32, ReduceOp::kSum));
  CHECK_FALSE(fits(&most, DType::kFloat32, ReduceOp::kAdasum));
  CHECK_FALSE(fits(&more, DType::kFloat32, ReduceOp::kSum));
  CHECK_FALSE(fits(&none, DType::kFloat32, ReduceOp::kSum));
  CHECK_FALSE(fits(&most, DType::kUInt32, ReduceOp::kSum));
}

TEST_CASE("inline data: small allgathers") {
  std::vector<int32_t> rows = {1, 2, 3, 4};
  const TensorRef two = {DType::kInt32, {2, 1}, rows.data(), nullptr},
                  none = {DType::kInt32, {0, 1}, rows.data(), nullptr};
  CHECK(PackToGather({two}) == std::string(reinterpret_cast<const char*>(rows.data()), 8));
  CHECK(PackToGather({{DType::kInt8, {kMaxInlineBytes + 1}, rows.data(), nullptr}}).empty());
  const auto request = [](const TensorRef& tensor) {
    Announcement announcement;
    announcement.kind = RequestKind::kAllgather;
    announcement.tensors = {{tensor.dtype, tensor.shape}};
    announcement.data = PackToGather({tensor});
    return announcement;
  };
  const std::string all = GatherInline({{0, request(two)}, {1, request(none)}, {2, request(two)}});
  REQUIRE(all.size() == 16);
  std::vector<int32_t> got(4);
  const std::vector<std::vector<BufferView>> blocks = {{{got.data() + 2, 8}}, {{nullptr, 0}}, {{got.data(), 8}}};
  CHECK(UnpackGathered(all, blocks).ok());
  CHECK(got == std::vector<int32_t>{1, 2, 1, 2});
  CHECK_FALSE(UnpackGathered(all + "x", blocks).ok());
  Announcement without = request(two);
  without.data.clear();
  CHECK(GatherInline({{0, request(two)}, {1, without}}).empty());
}

}  // namespace
}  // namespace smddp
