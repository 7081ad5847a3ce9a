#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/text.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("texts are joined in order") {
  const std::string name = "loss";
  const char* const kind = "allreduce";
  CHECK(Concat(kind, " '", name, "'", std::string_view(" of 3 ranks").substr(0, 5)) == "allreduce 'loss' of 3");
  CHECK(Concat("", name.empty() ? "" : " (" + name + ")") == " (loss)");
}

TEST_CASE("numbers are joined as std::to_string has them") {
  CHECK(Concat("rank ", 7, ", ", -12, ", ", uint64_t{1} << 63) == "rank 7, -12, 9223372036854775808");
  CHECK(Concat(uint8_t{200}, " ", int8_t{-3}, " ", true) == "200 -3 1");  // no characters
  CHECK(Concat(0.5, " s") == "0.500000 s");
  CHECK(Concat(std::numeric_limits<int64_t>::min()) == "-9223372036854775808");
}

TEST_CASE("lists have commas between their parts") {
  CHECK(Listed(std::vector<int>()) == "");
  CHECK(Listed(std::vector<int>{7}) == "7");
  CHECK(Listed(std::set<std::string>{"b", "a", "c"}) == "a, b, c");
  CHECK(Listed(std::vector<int64_t>{3, 0, -12}) == "3, 0, -12");
}

}  // namespace
}  // namespace smddp
