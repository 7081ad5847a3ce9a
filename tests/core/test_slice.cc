#include "core/slice.h"
#include "native/testing.h"

namespace smddp {
namespace {

std::vector<Range> SlicesOf(int64_t elements, size_t element_size, int parts) {
  std::vector<Range> slices;
  for (int index = 0; index < parts; ++index) slices.push_back(SliceOf(elements, element_size, parts, index));
  return slices;
}

template <class Body>
void ForRandomSlices(Body&& body) {
  ForSeeds(500, [&](Chance& chance) {
    const int64_t elements = chance.From(0, 5000);
    const size_t element_size = chance.Of<size_t>({1, 2, 4, 8, 16});
    const int parts = static_cast<int>(chance.From(1, 9));
    CAPTURE(elements);
    CAPTURE(element_size);
    CAPTURE(parts);
    body(SlicesOf(elements, element_size, parts), elements, static_cast<int64_t>(element_size), parts);
  });
}

TEST_CASE("slices cover everything once") {
  ForRandomSlices([](const std::vector<Range>& slices, int64_t elements, int64_t, int) {
    CHECK(slices.front().begin == 0);
    CHECK(slices.back().end == elements);
    for (size_t i = 0; i < slices.size(); ++i) {
      CHECK(slices[i].begin <= slices[i].end);
      if (i > 0) CHECK(slices[i - 1].end == slices[i].begin);
    }
  });
}

TEST_CASE("slices are equal and aligned") {
  ForRandomSlices([](const std::vector<Range>& slices, int64_t elements, int64_t element_size, int parts) {
    const auto alignment = static_cast<int64_t>(kSliceAlignment);
    const int64_t full = slices[0].size();
    for (const Range& slice : slices) {
      CHECK((slice.begin * element_size % alignment == 0 || slice.begin == elements));
      CHECK((slice.size() == full || slice.end == elements));  // only the end may cut a slice off
    }
    CHECK(full * element_size * parts < elements * element_size + parts * (element_size + alignment));
  });
}

TEST_CASE("slices of what divides into aligned pieces are no larger than needed") {
  for (const int parts : {1, 2, 3, 8}) {
    for (const int64_t pieces : {1, 2, 5}) {
      for (const Range& slice : SlicesOf(32 * pieces * parts, 4, parts)) CHECK(slice.size() == 32 * pieces);
    }
  }
}

TEST_CASE("fewer elements than one aligned piece belong to the first part") {
  for (const int parts : {1, 2, 3, 4, 7, 8}) {
    for (const int64_t elements : {0, 1, parts - 1, parts, parts + 1}) {
      const std::vector<Range> slices = SlicesOf(elements, 4, parts);
      CHECK(slices[0].begin == 0);
      CHECK(slices[0].end == elements);
      for (size_t i = 1; i < slices.size(); ++i) CHECK(slices[i].empty());
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
