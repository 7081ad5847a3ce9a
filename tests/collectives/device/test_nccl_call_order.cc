#include <memory>

#include "collectives/device/nccl_call_order.h"
#include "native/ranks.h"

namespace smddp {
namespace {

using Keys = std::vector<NcclCallOrder::Key>;

// The members of a group over mailboxes, stepped by this thread.
struct Members {
  explicit Members(int size) : hub(size) {
    for (int rank = 0; rank < size; ++rank) {
      parts.push_back(FabricOf(rank, Hosts(size, "a")));
      transports.push_back(std::make_unique<InprocTransport>(hub, rank));
      const Fabric& own = parts.back()->fabric();
      fabrics.push_back(std::unique_ptr<Fabric>(
          new Fabric{own.topology, own.node, *transports.back(), own.compute, own.chunk_bytes, own.rail}));
      orders.push_back(std::make_unique<NcclCallOrder>(*fabrics.back(), own.topology.all()));
    }
  }
  Keys Turn(int rank) {
    for (auto& transport : transports) Value(transport->Progress());
    return Value(orders[rank]->Turn());
  }
  // Messages travel from member to member.
  void Settle() {
    for (size_t round = 0; round < orders.size(); ++round) {
      for (size_t rank = 0; rank < orders.size(); ++rank) Turn(static_cast<int>(rank));
    }
  }
  InprocHub hub;
  std::vector<std::unique_ptr<FabricParts>> parts;
  std::vector<std::unique_ptr<InprocTransport>> transports;
  std::vector<std::unique_ptr<Fabric>> fabrics;
  std::vector<std::unique_ptr<NcclCallOrder>> orders;
};

TEST_CASE("order of NCCL's calls: all take the turns of the first member, whatever is ready first") {
  for (const int size : {1, 2, 3, 8, 13}) {
    Members members(size);
    const Keys keys = {NcclCallOrder::KeyOf(5, 0), NcclCallOrder::KeyOf(6, 0), NcclCallOrder::KeyOf(5, 1),
                       NcclCallOrder::KeyOf(7, 0)};
    for (const int i : {1, 0, 3, 2}) CHECK(members.orders[0]->Want(keys[i]).ok());
    for (int rank = 1; rank < size; ++rank) {
      for (const int i : {0, 1, 2, 3}) CHECK(members.orders[rank]->Want(keys[i]).ok());
    }
    members.Settle();
    // Two turns were assigned when the first calls came; the others were collected.
    for (const Keys& turn : {Keys{keys[1]}, Keys{keys[0]}, Keys{keys[3], keys[2]}}) {
      for (int rank = 0; rank < size; ++rank) {
        CAPTURE(rank);
        CHECK(members.Turn(rank) == turn);
      }
      for (auto& order : members.orders) order->Finish();
      members.Settle();
    }
    for (int rank = 0; rank < size; ++rank) CHECK(members.Turn(rank).empty());
  }
}

TEST_CASE("order of NCCL's calls: a turn has a limited number of calls") {
  Members members(2);
  for (NcclCallOrder::Key key = 0; key < 2 + 2 * NcclCallOrder::kMostTogether; ++key) {
    for (auto& order : members.orders) CHECK(order->Want(key).ok());
  }
  size_t seen = 0;
  for (const size_t together : {1, 1, NcclCallOrder::kMostTogether, NcclCallOrder::kMostTogether}) {
    members.Settle();
    const Keys turn = members.Turn(1);
    REQUIRE(turn.size() == together);
    for (const NcclCallOrder::Key key : turn) CHECK(key == seen++);
    for (auto& order : members.orders) order->Finish();
  }
}

TEST_CASE("order of NCCL's calls: a turn of what this rank has not begun is waited for") {
  Members members(2);
  CHECK(members.orders[0]->Want(1).ok());
  CHECK(members.orders[0]->Want(2).ok());
  CHECK(members.orders[1]->Want(2).ok());
  CHECK(members.Turn(0) == Keys{1});
  for (int look = 0; look < 2; ++look) CHECK(members.Turn(1).empty());  // both turns have come now
  CHECK(Has(members.orders[1]->Describe(), "an earlier call of NCCL, which this rank has not begun"));
  CHECK(members.orders[1]->Want(1).ok());
  CHECK(members.Turn(1) == Keys{1});
  members.orders[1]->Finish();
  CHECK(members.Turn(1) == Keys{2});
}

TEST_CASE("order of NCCL's calls: calls of one turn wait for one another") {
  Members members(2);
  for (const int key : {1, 2, 3, 4}) CHECK(members.orders[0]->Want(key).ok());
  for (const int key : {1, 2, 3}) CHECK(members.orders[1]->Want(key).ok());
  members.Settle();
  for (int turn = 0; turn < 2; ++turn) {
    for (auto& order : members.orders) order->Finish();
    members.Settle();
  }
  CHECK(members.Turn(0) == Keys{3, 4});
  CHECK(members.Turn(1).empty());
  CHECK(members.orders[1]->Want(4).ok());
  CHECK(members.Turn(1) == Keys{3, 4});
}

TEST_CASE("order of NCCL's calls: one that waits for the member before it says so") {
  Members members(4);
  CHECK(members.orders[3]->Want(9).ok());
  CHECK(members.Turn(3).empty());
  CHECK(Has(members.orders[3]->Describe(), "waiting for rank 2"));
  for (const int rank : {2, 0}) CHECK(members.orders[rank]->Want(9).ok());
  members.Settle();
  CHECK(members.Turn(3) == Keys{9});
}

TEST_CASE("order of NCCL's calls: keys of operations and their calls differ") {
  CHECK(NcclCallOrder::KeyOf(1, 0) != NcclCallOrder::KeyOf(0, 1));
  CHECK(NcclCallOrder::KeyOf(0xffffff, 255) == 0xffffffffu);
}

}  // namespace
}  // namespace smddp
