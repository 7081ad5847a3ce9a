#include "core/shape.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("elements of a shape") {
  CHECK(ElementCount({}) == 1);  // a scalar
  CHECK(ElementCount({7}) == 7);
  CHECK(ElementCount({2, 3, 5}) == 30);
  CHECK(ElementCount({2, 0, 5}) == 0);
}

TEST_CASE("text of a shape") {
  CHECK(ShapeText({}) == "[]");
  CHECK(ShapeText({3}) == "[3]");
  CHECK(ShapeText({3, 0, 12}) == "[3, 0, 12]");
}

TEST_CASE("shapes that no tensor has are refused") {
  CHECK(IsPossible({}));
  CHECK(IsPossible({0}));
  CHECK(IsPossible({kMaxElements}));
  CHECK(IsPossible({kMaxElements / 4, 2, 2}));
  CHECK_FALSE(IsPossible({-1}));
  CHECK_FALSE(IsPossible({kMaxElements + 1}));
  CHECK_FALSE(IsPossible({kMaxElements / 4, 2, 4}));
  CHECK_FALSE(IsPossible({int64_t{1} << 62, 8}));  // the product would not fit
  SUBCASE("an extent of 0 hides no large one") {
    CHECK_FALSE(IsPossible({0, kMaxElements + 1}));
    CHECK_FALSE(IsPossible({kMaxElements + 1, 0}));
    CHECK(IsPossible({0, kMaxElements}));
  }
}

}  // namespace
}  // namespace smddp
