#include "native/members.h"

namespace smddp {
namespace {

TEST_CASE("halving_doubling: exact sums on all members, at the cost that is said") {
  CheckAlgorithm(*AlgorithmByName("halving_doubling"));
}

TEST_CASE("halving_doubling: no chain of messages is longer than is said") {
  CheckChains(*AlgorithmByName("halving_doubling"));
}

}  // namespace
}  // namespace smddp
