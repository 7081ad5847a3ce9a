#include "compute/fused_view.h"
#include "native/testing.h"

namespace smddp {
namespace {

// Pieces of 3, 0, 4 and 2 floats; the third has no input, the last no output.
struct Memory {
  std::vector<float> a = {1, 2, 3}, zero, c = {9, 9, 9, 9}, d = {4, 5};
  std::vector<Piece> pieces() {
    return {{a.data(), a.data(), 3}, {nullptr, nullptr, 0}, {nullptr, c.data(), 4}, {d.data(), nullptr, 2}};
  }
};

TEST_CASE("fused view: packing reads every piece, zeros where there is none, and scales") {
  Memory memory;
  const FusedView view(DType::kFloat32, DType::kFloat32, memory.pieces(), {2.0, 1}, {}, CpuCompute());
  CHECK(view.elements() == 9);
  CHECK(view.starts() == std::vector<int64_t>{0, 3, 7, 9});  // without the empty one
  std::vector<float> packed(9, -1);
  view.Pack({0, 9}, packed.data());
  CHECK(packed == std::vector<float>{2, 4, 6, 0, 0, 0, 0, 8, 10});
  for (int64_t begin = 0; begin < 9; ++begin) {
    for (int64_t end = begin; end <= 9; ++end) {
      std::vector<float> part(end - begin);
      view.Pack({begin, end}, part.data());
      CHECK(part == std::vector<float>(packed.begin() + begin, packed.begin() + end));
    }
  }
}

TEST_CASE("fused view: unpacking writes where there is an output, and scales once") {
  Memory memory;
  const FusedView view(DType::kFloat32, DType::kFloat32, memory.pieces(), {}, {1.0, 2}, CpuCompute());
  const std::vector<float> sums = {2, 4, 6, 8, 10, 12, 14, 16, 18};
  view.Unpack({2, 8}, sums.data() + 2);
  CHECK(memory.a == std::vector<float>{1, 2, 3});
  CHECK(memory.c == std::vector<float>{4, 5, 6, 7});
  CHECK(memory.d == std::vector<float>{4, 5});  // not needed
  view.Unpack({0, 3}, sums.data(), /*finished=*/true);
  CHECK(memory.a == std::vector<float>{2, 4, 6});
  std::vector<float> in_place = {2, 4};
  view.Finish(in_place.data(), 2);
  CHECK(in_place == std::vector<float>{1, 2});
}

TEST_CASE("fused view: a narrower wire dtype") {
  Memory memory;
  const FusedView view(DType::kFloat32, DType::kBFloat16, memory.pieces(), {}, {}, CpuCompute());
  std::vector<uint16_t> packed(9);
  view.Pack({0, 9}, packed.data());
  CHECK(packed == std::vector<uint16_t>{0x3f80, 0x4000, 0x4040, 0, 0, 0, 0, 0x4080, 0x40a0});
  packed[3] = 0x4120;  // 10
  view.Unpack({0, 9}, packed.data());
  CHECK(memory.a == std::vector<float>{1, 2, 3});
  CHECK(memory.c == std::vector<float>{10, 0, 0, 0});
  CHECK_FALSE(view.inputs_are_packed());
  CHECK_FALSE(view.outputs_are_packed());
}

TEST_CASE("fused view: what can be read without packing") {
  Memory memory;
  const FusedView plain(DType::kFloat32, DType::kFloat32, memory.pieces(), {}, {2, 1}, CpuCompute());
  CHECK(plain.Direct({1, 3}) == memory.a.data() + 1);
  CHECK(plain.Direct({7, 9}) == memory.d.data());
  CHECK(plain.Direct({2, 4}) == nullptr);  // two pieces
  CHECK(plain.Direct({3, 5}) == nullptr);  // zeros
  CHECK(plain.Direct({2, 2}) == nullptr);
  const FusedView scaled(DType::kFloat32, DType::kFloat32, memory.pieces(), {2, 1}, {}, CpuCompute());
  CHECK(scaled.Direct({1, 3}) == nullptr);
}

TEST_CASE("fused view: a range is cut where pieces end") {
  Memory memory;
  const FusedView view(DType::kFloat32, DType::kFloat32, memory.pieces(), {}, {}, CpuCompute());
  const std::vector<PieceRange> ranges = view.PieceRanges({2, 8});
  REQUIRE(ranges.size() == 3);
  CHECK(ranges[0].range.begin == 2);
  CHECK(ranges[0].range.end == 3);
  CHECK(ranges[0].input == reinterpret_cast<std::byte*>(memory.a.data() + 2));
  CHECK(ranges[1].range.end == 7);
  CHECK(ranges[1].input == nullptr);
  CHECK(ranges[1].output == reinterpret_cast<std::byte*>(memory.c.data()));
  CHECK(ranges[2].range.begin == 7);
  CHECK(ranges[2].range.end == 8);
  CHECK(ranges[2].output == nullptr);
}

}  // namespace
}  // namespace smddp
