#include "runtime/control/component.h"

#include "core/wire.h"

namespace smddp {

void ControlBus::PostToOthers(const std::string& message) {
  for (const int rank : OtherRanks(topology())) Post(rank, message);
}

std::set<int> OtherRanks(const Topology& topology) {
  const std::vector<int> ranks = topology.all().world_ranks();
  std::set<int> others(ranks.begin(), ranks.end());
  others.erase(topology.rank());
  return others;
}

Status Component::OnMessage(int from, std::string_view) {
  return Status(Reason::kInternal, "A message of rank " + std::to_string(from) + " has an unknown type.");
}

Status Refused(const Topology& topology, int from, const char* what) {
  return OtherVersion("Rank " + std::to_string(topology.global_rank(from)) + " " + what);
}

}  // namespace smddp
