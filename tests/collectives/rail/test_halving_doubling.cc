#include "native/members.h"

namespace smddp {
namespace {

TEST_CASE("halving_doubling: exact sums on all members, at the cost that is said") {
  CheckAlgorithm(*AlgorithmByName("halving_doubling"));
}

TEST_CASE("halving_doubling: no chain of messages is longer than is said") {
  for (const int size : {2, 3, 4, 6, 8}) {
    Members members(size);
    std::vector<std::vector<float>> data(size, std::vector<float>(2048, 1));
    std::vector<TaskPtr> tasks;
    for (int member = 0; member < size; ++member) {
      RailCall call;
      call.data = {data[member].data(), 8192};
      call.elements = 2048;
      tasks.push_back(
          AlgorithmByName("halving_doubling")
              ->Begin(members.group(), members.rank(member), members.transport(member), CpuCompute(), call));
    }
    members.Run(std::move(tasks));
    int longest = 0;
    for (int member = 0; member < size; ++member) longest = std::max(longest, members.transport(member).depth());
    const int most = AlgorithmByName("halving_doubling")->info().cost(size).steps;
    CHECK(longest <= most);
    CHECK(longest >= most - ((size & (size - 1)) != 0 ? 1 : 0));  // folded: not every chain is the longest
  }
}

}  // namespace
}  // namespace smddp
