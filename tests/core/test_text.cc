#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

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

}  // namespace
}  // namespace smddp
