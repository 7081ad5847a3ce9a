#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "core/shard.h"
#include "python/errors.h"
#include "topology/topology.h"
#include "transport/tag_split.h"

namespace nb = nanobind;

namespace smddp {
namespace {

nb::dict Describe(int my_rank, const std::vector<std::string>& hosts) {
  const Topology topology = ValueOrThrow(Topology::Build(my_rank, hosts));
  std::vector<std::vector<int>> nodes;
  for (const Group& node : topology.nodes()) nodes.push_back(node.world_ranks());
  nb::dict result;
  result["rank"] = topology.rank();
  result["size"] = topology.size();
  result["local_rank"] = topology.local_rank();
  result["local_size"] = topology.local_size();
  result["node_index"] = topology.node_index();
  result["node_count"] = topology.node_count();
  result["cross_rank"] = topology.cross_rank();
  result["cross_size"] = topology.cross_size();
  result["rail_count"] = topology.rail_count();
  result["is_reducer"] = topology.is_reducer();
  result["uniform"] = topology.uniform();
  result["node"] = topology.node().world_ranks();
  result["rail"] = topology.rail().world_ranks();
  result["nodes"] = nodes;
  return result;
}

nb::tuple Shard(int64_t elements, size_t element_size, int parts, int index) {
  if (elements < 0 || element_size == 0 || parts < 1 || index < 0 || index >= parts) {
    throw nb::value_error("Expected elements >= 0, element_size >= 1 and 0 <= index < parts.");
  }
  const Range range = ShardOf(elements, element_size, parts, index);
  return nb::make_tuple(range.begin, range.end);
}

nb::tuple SplitTag(int64_t largest_tag, uint32_t operation, uint8_t stage, uint16_t step) {
  const TagSplit tags(largest_tag);
  const uint32_t packed = PackTag({operation, stage, step});
  return nb::make_tuple(tags.CommunicatorOf(packed), tags.MpiTagOf(packed));
}

nb::tuple ControlTag(int64_t largest_tag) {
  const TagSplit tags(largest_tag);
  return nb::make_tuple(tags.CommunicatorOf(TagSplit::kControl), tags.MpiTagOf(TagSplit::kControl));
}

}  // namespace

void BindTopology(nb::module_& m) {
  m.def("topology", &Describe, nb::arg("my_rank"), nb::arg("hosts"));
  m.def("shard_of", &Shard, nb::arg("elements"), nb::arg("element_size"), nb::arg("parts"), nb::arg("index"));
  m.def("split_tag", &SplitTag, nb::arg("largest_tag"), nb::arg("operation"), nb::arg("stage"), nb::arg("step"));
  m.def("control_tag", &ControlTag, nb::arg("largest_tag"));
  m.def(
      "tag_communicators", [](int64_t largest_tag) { return TagSplit(largest_tag).communicators(); },
      nb::arg("largest_tag"));
}

}  // namespace smddp
