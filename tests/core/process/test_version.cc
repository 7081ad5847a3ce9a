#include <fstream>
#include <string>

#include "core/process/version.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("the version is that of the file VERSION") {
  std::ifstream file(SMDDP_TEST_ROOT "/VERSION");
  std::string expected;
  REQUIRE(std::getline(file, expected));
  CHECK(Version() == expected);
}

}  // namespace
}  // namespace smddp
