// The position of every rank. Pure data: built from one host id per rank, never changed, no I/O.
//
//   node:  every rank on my host
//   all:   every rank
//   rail:  the ranks with my local rank on every node that has one
//
// Nodes may have different numbers of ranks. Only the first `rail_count` ranks of a node (the smallest node's size)
// are reducers, so that every rail has one member on every node; the others contribute and receive.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace smddp {

// An ordered set of world ranks; the position in the list is the rank inside the group.
class Group {
 public:
  Group() = default;
  explicit Group(std::vector<int> world_ranks) : world_ranks_(std::move(world_ranks)) {}

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int position) const { return world_ranks_[position]; }
  int position_of(int world_rank) const;  // -1 when the rank is not a member
  const std::vector<int>& world_ranks() const { return world_ranks_; }

 private:
  std::vector<int> world_ranks_;
};

class Topology {
 public:
  // `host_of_rank[r]` is any text that is equal for ranks of the same node. Nodes are numbered by their first rank.
  // `global_ranks[r]`: the number by which users know rank r, where these ranks are a process set; empty: r.
  static Result<Topology> Build(int my_rank, const std::vector<std::string>& host_of_rank,
                                const std::vector<int>& global_ranks = {});

  int rank() const { return rank_; }
  int size() const { return all_.size(); }
  int local_rank() const { return local_rank_; }
  int local_size() const { return node().size(); }
  int node_index() const { return node_index_; }
  int node_count() const { return static_cast<int>(nodes_.size()); }
  bool uniform() const;  // the same number of ranks on every node

  // In process sets, ranks are reported to users, and accepted from them, by their number among all ranks.
  bool is_process_set() const { return global_.size() > 0; }
  int global_rank(int rank) const { return is_process_set() ? global_.world_rank(rank) : rank; }
  int rank_of_global(int global_rank) const;  // -1 when it is not a member

  const Group& all() const { return all_; }
  const Group& node() const { return nodes_[node_index_]; }
  const std::vector<Group>& nodes() const { return nodes_; }

  // Reducers per node: the number of ranks on the smallest node.
  int rail_count() const { return rail_count_; }
  bool is_reducer() const { return local_rank_ < rail_count_; }
  // One member per node, ordered by node. Only reducers have one; for others it is empty.
  const Group& rail() const { return rail_; }

  // Horovod's "cross" numbers: among the nodes that have my local rank, how many there are and which one is mine.
  int cross_rank() const { return cross_.position_of(rank_); }
  int cross_size() const { return cross_.size(); }

  int node_of(int world_rank) const { return node_of_[world_rank]; }
  // "node1": the part of the host id before the first ":".
  std::string host_name(int world_rank) const;

 private:
  int rank_ = 0, local_rank_ = 0, node_index_ = 0, rail_count_ = 1;
  Group all_, rail_, cross_, global_;
  std::vector<Group> nodes_;
  std::vector<int> node_of_;
  std::vector<std::string> hosts_;
};

// "Rank 2 (host node1)", by the number that users know.
std::string NamedWithHost(const Topology& topology, int rank);

}  // namespace smddp
