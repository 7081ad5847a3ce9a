#include <memory>

#include "collectives/device/nccl_call_order.h"
#include "native/ranks.h"

namespace smddp {
namespace {

// The ranks of a node over mailboxes, stepped by this thread.
struct Node {
  explicit Node(int size) : hub(size) {
    for (int rank = 0; rank < size; ++rank) {
      parts.push_back(FabricOf(rank, Hosts(size, "a")));
      transports.push_back(std::make_unique<InprocTransport>(hub, rank));
      const Fabric& own = parts.back()->fabric();
      fabrics.push_back(std::unique_ptr<Fabric>(
          new Fabric{own.topology, own.node, *transports.back(), own.compute, own.chunk_bytes, own.rail}));
      orders.push_back(std::make_unique<NcclCallOrder>(*fabrics.back()));
    }
  }
  bool Has(int rank, uint64_t key) {
    for (auto& transport : transports) Value(transport->Progress());
    return Value(orders[rank]->Has(key));
  }
  InprocHub hub;
  std::vector<std::unique_ptr<FabricParts>> parts;
  std::vector<std::unique_ptr<InprocTransport>> transports;
  std::vector<std::unique_ptr<Fabric>> fabrics;
  std::vector<std::unique_ptr<NcclCallOrder>> orders;
};

TEST_CASE("order of NCCL's calls: all take the turns of the first rank, whatever is ready first") {
  Node node(3);
  const uint64_t keys[] = {NcclCallOrder::KeyOf(5, 0), NcclCallOrder::KeyOf(6, 0), NcclCallOrder::KeyOf(5, 1)};
  for (const int i : {1, 0, 2}) CHECK(node.orders[0]->Want(keys[i]).ok());
  for (const int rank : {1, 2}) {
    for (const int i : {0, 1, 2}) CHECK(node.orders[rank]->Want(keys[i]).ok());
  }
  for (const int turn : {1, 0, 2}) {
    for (int rank = 0; rank < 3; ++rank) {
      for (int i = 0; i < 3; ++i) {
        CAPTURE(rank);
        CHECK(node.Has(rank, keys[i]) == (i == turn));
      }
    }
    for (auto& order : node.orders) order->Finish(keys[turn]);
  }
}

TEST_CASE("order of NCCL's calls: a turn of what this rank has not begun is waited for") {
  Node node(2);
  CHECK(node.orders[0]->Want(1).ok());
  CHECK(node.orders[0]->Want(2).ok());
  CHECK(node.orders[1]->Want(2).ok());
  CHECK(node.Has(0, 1));
  for (int look = 0; look < 2; ++look) CHECK_FALSE(node.Has(1, 2));  // both turns have come now
  CHECK(Has(node.orders[1]->Describe(), "an earlier call of NCCL, which this rank has not begun"));
  CHECK(node.orders[1]->Want(1).ok());
  CHECK(node.Has(1, 1));
  node.orders[1]->Finish(1);
  CHECK(node.Has(1, 2));
}

TEST_CASE("order of NCCL's calls: one that waits for the first rank says so") {
  Node node(2);
  CHECK(node.orders[1]->Want(9).ok());
  CHECK_FALSE(node.Has(1, 9));
  CHECK(Has(node.orders[1]->Describe(), "waiting for rank 0"));
  CHECK(node.orders[0]->Want(9).ok());
  CHECK(node.Has(1, 9));
}

TEST_CASE("order of NCCL's calls: keys of operations and their calls differ") {
  CHECK(NcclCallOrder::KeyOf(1, 0) != NcclCallOrder::KeyOf(0, 1));
  CHECK(NcclCallOrder::KeyOf(0xffffff, 255) == 0xffffffffull);
}

}  // namespace
}  // namespace smddp
