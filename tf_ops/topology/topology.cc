#include "topology/topology.h"

#include <algorithm>
#include <map>

namespace smddp {

int Group::position_of(int world_rank) const {
  const auto at = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  return at == world_ranks_.end() ? -1 : static_cast<int>(at - world_ranks_.begin());
}

Result<Topology> Topology::Build(int my_rank, const std::vector<std::string>& host_of_rank,
                                 const std::vector<int>& global_ranks) {
  const int size = static_cast<int>(host_of_rank.size());
  if (my_rank < 0 || my_rank >= size) {
    return Status(Reason::kBadArgument, "Expected a rank from 0 to ", size - 1, ". Received: ", my_rank, ".");
  }
  Topology topology;
  topology.rank_ = my_rank;
  topology.hosts_ = host_of_rank;
  topology.global_ = Group(global_ranks);
  std::map<std::string, int> index_of_host;
  std::vector<std::vector<int>> members;
  std::vector<int> everybody(size);
  for (int rank = 0; rank < size; ++rank) {
    const auto [at, is_new] = index_of_host.try_emplace(host_of_rank[rank], static_cast<int>(members.size()));
    if (is_new) members.emplace_back();
    members[at->second].push_back(rank);
    topology.node_of_.push_back(at->second);
    everybody[rank] = rank;
  }
  topology.all_ = Group(std::move(everybody));
  topology.rail_count_ = size;
  for (const std::vector<int>& node : members) {
    topology.nodes_.emplace_back(node);
    topology.rail_count_ = std::min(topology.rail_count_, static_cast<int>(node.size()));
  }
  topology.node_index_ = topology.node_of_[my_rank];
  topology.local_rank_ = topology.node().position_of(my_rank);

  std::vector<int> with_my_local_rank;
  for (const Group& node : topology.nodes_) {
    if (topology.local_rank_ < node.size()) with_my_local_rank.push_back(node.world_rank(topology.local_rank_));
  }
  topology.cross_ = Group(std::move(with_my_local_rank));
  if (topology.is_reducer()) topology.rail_ = topology.cross_;
  return topology;
}

int Topology::rank_of_global(int global_rank) const {
  if (is_process_set()) return global_.position_of(global_rank);
  return global_rank >= 0 && global_rank < size() ? global_rank : -1;
}

bool Topology::uniform() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [this](const Group& node) { return node.size() == local_size(); });
}

std::string Topology::host_name(int world_rank) const {
  const std::string& host = hosts_[world_rank];
  return host.substr(0, host.find(':'));
}

std::string NamedWithHost(const Topology& topology, int rank) {
  return "Rank " + std::to_string(topology.global_rank(rank)) + " (host " + topology.host_name(rank) + ")";
}

}  // namespace smddp
