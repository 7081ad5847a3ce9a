#include "native/members.h"

namespace smddp {
namespace {

TEST_CASE("ring: exact sums on all members, at the cost that is said") { CheckAlgorithm(*AlgorithmByName("ring")); }

TEST_CASE("ring: a member sends to its right neighbour only") {
  Members members(5);
  std::vector<float> data[5];
  std::vector<TaskPtr> tasks;
  for (int member = 0; member < 5; ++member) {
    data[member] = ValuesOf(member, 1000);
    RailCall call;
    call.data = {data[member].data(), 4000};
    call.elements = 1000;
    tasks.push_back(AlgorithmByName("ring")->Begin(members.group(), members.rank(member), members.transport(member),
                                                   CpuCompute(), call));
  }
  members.Run(std::move(tasks));
  for (int member = 0; member < 5; ++member) {
    for (const InprocTransport::Sent& sent : members.transport(member).sent()) {
      CHECK(sent.to == members.rank((member + 1) % 5));
    }
  }
}

}  // namespace
}  // namespace smddp
