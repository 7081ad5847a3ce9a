#include "core/shard.h"
#include "native/testing.h"

namespace smddp {
namespace {

std::vector<Range> ShardsOf(int64_t elements, size_t element_size, int parts) {
  std::vector<Range> shards;
  for (int index = 0; index < parts; ++index) shards.push_back(ShardOf(elements, element_size, parts, index));
  return shards;
}

template <class Body>
void ForRandomShards(Body&& body) {
  ForSeeds(500, [&](Chance& chance) {
    const int64_t elements = chance.From(0, 5000);
    const size_t element_size = chance.Of<size_t>({1, 2, 4, 8, 16});
    const int parts = static_cast<int>(chance.From(1, 9));
    CAPTURE(elements);
    CAPTURE(element_size);
    CAPTURE(parts);
    body(ShardsOf(elements, element_size, parts), elements, static_cast<int64_t>(element_size), parts);
  });
}

TEST_CASE("shards cover everything once") {
  ForRandomShards([](const std::vector<Range>& shards, int64_t elements, int64_t, int) {
    CHECK(shards.front().begin == 0);
    CHECK(shards.back().end == elements);
    for (size_t i = 0; i < shards.size(); ++i) {
      CHECK(shards[i].begin <= shards[i].end);
      if (i > 0) CHECK(shards[i - 1].end == shards[i].begin);
    }
  });
}

TEST_CASE("shards are equal and aligned") {
  ForRandomShards([](const std::vector<Range>& shards, int64_t elements, int64_t element_size, int parts) {
    const auto alignment = static_cast<int64_t>(kShardAlignment);
    const int64_t full = shards[0].size();
    for (const Range& shard : shards) {
      CHECK((shard.begin * element_size % alignment == 0 || shard.begin == elements));
      CHECK((shard.size() == full || shard.end == elements));  // only the end may cut a shard off
    }
    CHECK(full * element_size * parts < elements * element_size + parts * (element_size + alignment));
  });
}

TEST_CASE("shards of what divides into aligned pieces are no larger than needed") {
  for (const int parts : {1, 2, 3, 8}) {
    for (const int64_t pieces : {1, 2, 5}) {
      for (const Range& shard : ShardsOf(32 * pieces * parts, 4, parts)) CHECK(shard.size() == 32 * pieces);
    }
  }
}

TEST_CASE("fewer elements than one aligned piece belong to the first part") {
  for (const int parts : {1, 2, 3, 4, 7, 8}) {
    for (const int64_t elements : {0, 1, parts - 1, parts, parts + 1}) {
      const std::vector<Range> shards = ShardsOf(elements, 4, parts);
      CHECK(shards[0].begin == 0);
      CHECK(shards[0].end == elements);
      for (size_t i = 1; i < shards.size(); ++i) CHECK(shards[i].empty());
    }
  }
}

TEST_CASE("rows are divided as Horovod does") {
  const auto rows = [](int64_t count, int parts) {
    std::vector<int64_t> sizes;
    for (int i = 0; i < parts; ++i) sizes.push_back(RowsOf(count, parts, i).size());
    return sizes;
  };
  CHECK(rows(10, 4) == std::vector<int64_t>{3, 3, 2, 2});
  CHECK(rows(8, 4) == std::vector<int64_t>{2, 2, 2, 2});
  CHECK(rows(2, 4) == std::vector<int64_t>{1, 1, 0, 0});
  CHECK(rows(0, 3) == std::vector<int64_t>{0, 0, 0});
  for (int parts = 1; parts < 9; ++parts) {
    for (int64_t count = 0; count < 30; ++count) {
      int64_t end = 0;
      for (int i = 0; i < parts; ++i) {
        CHECK(RowsOf(count, parts, i).begin == end);
        end = RowsOf(count, parts, i).end;
      }
      CHECK(end == count);
    }
  }
}

TEST_CASE("parts of a tensor are aligned and hold it") {
  for (const int parts : {1, 2, 3, 8}) {
    const Parting parting = {PartMode::kReduce, parts};
    CHECK_FALSE(parting.whole());
    for (const int64_t elements : {0, 1, 15, 16, 17, 1000, 4097}) {
      const int64_t length = parting.Length(elements);
      CAPTURE(elements);
      CHECK(length % Parting::kAlignment == 0);
      CHECK(length * parts >= elements);
      CHECK((length - Parting::kAlignment) * parts < elements + (elements == 0));
    }
  }
  CHECK(Parting().whole());
}

}  // namespace
}  // namespace smddp
