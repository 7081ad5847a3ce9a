#include "native/members.h"

namespace smddp {
namespace {

TEST_CASE("recursive_doubling: exact sums on all members, at the cost that is said") {
  CheckAlgorithm(*AlgorithmByName("recursive_doubling"));
}

TEST_CASE("recursive_doubling: no chain of messages is longer than is said") {
  CheckChains(*AlgorithmByName("recursive_doubling"));
}

}  // namespace
}  // namespace smddp
