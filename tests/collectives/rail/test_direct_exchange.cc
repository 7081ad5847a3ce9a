#include "native/members.h"

namespace smddp {
namespace {

TEST_CASE("direct: exact sums on all members, at the cost that is said") { CheckAlgorithm(*AlgorithmByName("direct")); }

TEST_CASE("direct: members get the sums that they need, and no others") {
  constexpr int kSize = 4;
  constexpr int64_t kElements = 4 * 32;
  Members members(kSize);
  std::vector<std::vector<float>> data;
  std::vector<TaskPtr> tasks;
  for (int member = 0; member < kSize; ++member) data.push_back(ValuesOf(member, kElements));
  for (int member = 0; member < kSize; ++member) {
    RailCall call;
    call.data = {data[member].data(), kElements * sizeof(float)};
    call.elements = kElements;
    call.need_every = 2;
    tasks.push_back(AlgorithmByName("direct")->Begin(members.group(), members.rank(member), members.transport(member),
                                                     CpuCompute(), call));
  }
  members.Run(std::move(tasks));
  const std::vector<float> sum = SumOf(kSize, kElements);
  for (int member = 0; member < kSize; ++member) {
    const std::vector<float> mine = ValuesOf(member, kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      CHECK(data[member][i] == ((i / 32 - member) % 2 == 0 ? sum[i] : mine[i]));
    }
  }
}

}  // namespace
}  // namespace smddp
