#include "native/ranks.h"

namespace smddp {
namespace {

TEST_CASE("fabric: it is made of what the topology needs") {
  const auto parts = FabricOf(2, {"a", "a", "b"}, 8192);
  const Fabric& fabric = parts->fabric();
  CHECK(fabric.topology.rank() == 2);
  CHECK(fabric.chunk_bytes == 8192);
  CHECK(fabric.node.position() == 0);
  CHECK(fabric.node.size() == 1);
  CHECK(&fabric.node == &parts->node());
  CHECK(fabric.rail.by_name == nullptr);
  CHECK(parts->rail_bytes() == 0);
  CHECK(parts->Lives(0));
  Env env;
  env.chunk_bytes = 8192;
  CHECK(parts->arena_bytes() == FabricParts::LayoutFor(fabric.topology, env).total_bytes);
}

TEST_CASE("fabric: what is sent to other nodes is counted, and what is sent inside the node is not") {
  const auto parts = FabricOf(0, {"a", "a", "b"});
  int value = 5;
  Value(parts->transport().Send(2, {1, 0, 0}, {&value, 4}));
  Value(parts->transport().Send(1, {1, 0, 0}, {&value, 4}));
  CHECK(parts->rail_bytes() == 4);
}

TEST_CASE("fabric: the death of a member is what `lives` says") {
  Env env;
  env.chunk_bytes = 4096;
  env.cpu_isa = "generic";
  const std::shared_ptr<Segment> memory =
      Value(Segment::Private(FabricParts::LayoutFor(Value(Topology::Build(0, {"a"})), env).total_bytes));
  const FabricParts parts(Value(Topology::Build(0, {"a"})), env, {}, {memory->data()}, memory, nullptr,
                          [](int member) { return member != 1; });
  CHECK(parts.Lives(0));
  CHECK_FALSE(parts.Lives(1));
  CHECK(parts.rail_bytes() == 0);
  CHECK(std::string(parts.fabric().compute.name()) == "generic");
}

}  // namespace
}  // namespace smddp
