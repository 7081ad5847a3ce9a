#include "collectives/node/chunk.h"
#include "native/ranks.h"

namespace smddp {
namespace {

using Ranks = std::vector<int>;

// A chunk of elements 1000 ... 1000 + n of a view of floats.
struct Case {
  Case(int rank, const Hosts& hosts, int64_t elements, Parting parting = {})
      : parts(FabricOf(rank, hosts)),
        memory(2000),
        view(DType::kFloat32, DType::kFloat32, {{memory.data(), memory.data(), 2000}}, {}, {}, CpuCompute(), parting),
        chunk(parts->fabric(), {7, &view}, 11, {1000, 1000 + elements}) {}
  const std::unique_ptr<FabricParts> parts;
  std::vector<float> memory;
  const FusedView view;
  const Chunk chunk;
};

TEST_CASE("chunk: its slices cover it, by the ranks of the node that reduce") {
  for (int rank = 0; rank < 3; ++rank) {
    const Case one(rank, {"a", "a", "a", "b", "b"}, 100);  // two reduce on each node
    CHECK(one.chunk.reducers() == 2);
    CHECK(one.chunk.me() == rank);
    CHECK(one.chunk.slice_of(0).begin == 1000);
    CHECK(one.chunk.slice_of(0).end == 1064);  // 128 bytes, aligned
    CHECK(one.chunk.slice_of(1).begin == 1064);
    CHECK(one.chunk.slice_of(1).end == 1100);
    CHECK(one.chunk.slice_of(2).empty());
    CHECK(one.chunk.my_slice().empty() == (rank == 2));
    CHECK(one.chunk.other_reducers() == (rank == 0 ? Ranks{1} : rank == 1 ? Ranks{0} : Ranks{0, 1}));
    CHECK(one.chunk.crosses_nodes());
    CHECK(one.chunk.bytes_of({0, 3}) == 12);
    CHECK(one.chunk.tag(2).operation == 7);
    CHECK(one.chunk.tag(2).step == 11);
  }
}

TEST_CASE("chunk: a reducer without elements is not waited for") {
  const Case one(0, {"a", "a", "a", "a"}, 40);  // 32, 8, none, none
  CHECK(one.chunk.other_reducers() == Ranks{1});
  CHECK(one.chunk.sources() == Ranks{1});
  CHECK(one.chunk.readers() == Ranks{1, 2, 3});
  CHECK_FALSE(one.chunk.crosses_nodes());
}

TEST_CASE("chunk: of a reduction to parts only ranks of one place need a sum") {
  const Case one(1, {"a", "a", "a", "a"}, 128, {PartMode::kReduce, 2});
  CHECK(one.chunk.contributors() == Ranks{0, 2, 3});
  CHECK(one.chunk.sources() == Ranks{3});
  CHECK(one.chunk.readers() == Ranks{3});
}

TEST_CASE("chunk: of a gather the ranks of a group share it") {
  const Case one(3, {"a", "a", "a", "a"}, 128, {PartMode::kGather, 2});
  CHECK(one.chunk.gathers());
  CHECK(one.chunk.reducers() == 2);
  CHECK(one.chunk.first_reducer() == 2);
  CHECK(one.chunk.contributors().empty());
  CHECK(one.chunk.slice_of(2).begin == 1000);
  CHECK(one.chunk.slice_of(1).empty());  // of the other group
  CHECK_FALSE(one.chunk.crosses_nodes());
}

}  // namespace
}  // namespace smddp
