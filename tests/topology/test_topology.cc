// Who sits where: the pure function behind init(), with invented hosts.
#include <algorithm>
#include <set>

#include "native/testing.h"
#include "topology/topology.h"

namespace smddp {
namespace {

using Hosts = std::vector<std::string>;
using Ranks = std::vector<int>;

std::vector<Ranks> NodesOf(const Topology& topology) {
  std::vector<Ranks> nodes;
  for (const Group& node : topology.nodes()) nodes.push_back(node.world_ranks());
  return nodes;
}

// Calls body(hosts, the topology of a rank) for all ranks of many arrangements.
template <class Body>
void ForRandomHosts(Body&& body) {
  ForSeeds(300, [&](Chance& chance) {
    Hosts hosts(static_cast<size_t>(chance.From(1, 12)));
    for (std::string& host : hosts) host = chance.Of<std::string>({"a", "b", "c", "d"});
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      CAPTURE(rank);
      body(hosts, Value(Topology::Build(static_cast<int>(rank), hosts)));
    }
  });
}

TEST_CASE("topology: known arrangements") {
  const auto of = [](int rank, const Hosts& hosts) { return Value(Topology::Build(rank, hosts)); };
  const Topology alone = of(0, {"a"});
  CHECK(alone.local_rank() == 0);
  CHECK(alone.local_size() == 1);
  CHECK(alone.cross_rank() == 0);
  CHECK(alone.cross_size() == 1);
  CHECK(alone.rail().world_ranks() == Ranks{0});
  CHECK(alone.uniform());
  const Topology square = of(3, {"a", "a", "b", "b"});
  CHECK(square.local_rank() == 1);
  CHECK(square.node_index() == 1);
  CHECK(square.node().world_ranks() == Ranks{2, 3});
  CHECK(square.rail().world_ranks() == Ranks{1, 3});
  CHECK(square.rail_count() == 2);
  const Topology mixed = of(2, {"a", "b", "a", "b"});
  CHECK(mixed.local_rank() == 1);
  CHECK(mixed.node_index() == 0);
  CHECK(mixed.node().world_ranks() == Ranks{0, 2});
  CHECK(mixed.rail().world_ranks() == Ranks{2, 3});
  CHECK(mixed.uniform());
  const Topology contributes = of(1, {"a", "a", "b"});
  CHECK_FALSE(contributes.is_reducer());
  CHECK(contributes.rail().world_ranks() == Ranks{});
  CHECK(contributes.rail_count() == 1);
  CHECK(contributes.cross_size() == 1);
  CHECK_FALSE(contributes.uniform());
  const Topology reduces = of(2, {"a", "a", "b"});
  CHECK(reduces.is_reducer());
  CHECK(reduces.rail().world_ranks() == Ranks{0, 2});
  CHECK(reduces.cross_rank() == 1);
  CHECK(reduces.cross_size() == 2);
  CHECK_FALSE(reduces.uniform());
  const Topology apart = of(1, {"b", "a", "c"});
  CHECK(apart.local_size() == 1);
  CHECK(apart.node_count() == 3);
  CHECK(apart.rail().world_ranks() == Ranks{0, 1, 2});
  CHECK(apart.cross_rank() == 1);
  CHECK(apart.cross_size() == 3);
}

TEST_CASE("topology: nodes divide the world") {
  ForRandomHosts([](const Hosts& hosts, const Topology& topology) {
    const int size = static_cast<int>(hosts.size());
    CHECK(topology.size() == size);
    CHECK(topology.all().size() == size);
    Ranks everybody, firsts;
    for (const Ranks& node : NodesOf(topology)) {
      firsts.push_back(node[0]);
      for (const int member : node) {
        everybody.push_back(member);
        CHECK(hosts[member] == hosts[node[0]]);
        CHECK(topology.host_name(member) == hosts[member]);
        CHECK(topology.node_of(member) == static_cast<int>(firsts.size()) - 1);
      }
    }
    std::sort(everybody.begin(), everybody.end());
    REQUIRE(static_cast<int>(everybody.size()) == size);
    for (int rank = 0; rank < size; ++rank) CHECK(everybody[rank] == rank);
    CHECK(topology.node_count() == static_cast<int>(firsts.size()));
    CHECK(firsts.size() == std::set<std::string>(hosts.begin(), hosts.end()).size());
    CHECK(std::is_sorted(firsts.begin(), firsts.end()));  // nodes are numbered by their first rank
  });
}

TEST_CASE("topology: place on the node") {
  ForRandomHosts([](const Hosts&, const Topology& topology) {
    const std::vector<Ranks> nodes = NodesOf(topology);
    const Ranks& node = nodes[topology.node_index()];
    CHECK(topology.node().world_ranks() == node);
    CHECK(node[topology.local_rank()] == topology.rank());
    CHECK(topology.local_size() == static_cast<int>(node.size()));
    std::set<size_t> sizes;
    for (const Ranks& other : nodes) sizes.insert(other.size());
    CHECK(topology.uniform() == (sizes.size() == 1));
  });
}

TEST_CASE("topology: rails cross every node once") {
  ForRandomHosts([](const Hosts& hosts, const Topology& topology) {
    const int mine = topology.local_rank();
    size_t smallest = hosts.size();
    Ranks with_my_local_rank;
    for (const Ranks& node : NodesOf(topology)) {
      smallest = std::min(smallest, node.size());
      if (mine < static_cast<int>(node.size())) with_my_local_rank.push_back(node[mine]);
    }
    CHECK(topology.rail_count() == static_cast<int>(smallest));
    CHECK(topology.is_reducer() == (mine < topology.rail_count()));
    CHECK(topology.rail().world_ranks() == (topology.is_reducer() ? with_my_local_rank : Ranks()));
    CHECK(topology.cross_size() == static_cast<int>(with_my_local_rank.size()));
    CHECK(with_my_local_rank[topology.cross_rank()] == topology.rank());
  });
}

TEST_CASE("topology: all ranks see the same") {
  ForRandomHosts([](const Hosts& hosts, const Topology& topology) {
    const Topology first = Value(Topology::Build(0, hosts));
    CHECK(NodesOf(topology) == NodesOf(first));
    CHECK(topology.rail_count() == first.rail_count());
    CHECK(topology.uniform() == first.uniform());
  });
}

TEST_CASE("topology: a rank outside the world is refused") {
  const std::pair<int, Hosts> cases[] = {{0, {}}, {2, {"a", "b"}}, {-1, {"a"}}};
  for (const auto& [rank, hosts] : cases) {
    const Status status = Topology::Build(rank, hosts).status();
    CHECK(status.reason() == Reason::kBadArgument);
    CHECK(Begins(status.message(), "Expected a rank from 0 to"));
  }
}

TEST_CASE("topology: a process set is spoken of by the numbers that users know") {
  const Topology set = Value(Topology::Build(1, {"node1:boot", "node2:boot"}, {3, 8}));
  CHECK(set.is_process_set());
  CHECK(set.global_rank(1) == 8);
  CHECK(set.rank_of_global(3) == 0);
  CHECK(set.rank_of_global(1) == -1);
  CHECK(NamedWithHost(set, 1) == "Rank 8 (host node2)");
  const Topology all = Value(Topology::Build(1, {"node1:boot", "node2:boot"}));
  CHECK_FALSE(all.is_process_set());
  CHECK(all.global_rank(1) == 1);
  CHECK(all.rank_of_global(1) == 1);
  CHECK(all.host_name(0) == "node1");
}

}  // namespace
}  // namespace smddp
