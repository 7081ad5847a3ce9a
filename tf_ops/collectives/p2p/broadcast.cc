#include "collectives/p2p/broadcast.h"

#include <algorithm>

#include "collectives/patterns/binomial_tree.h"
#include "collectives/transfers.h"

namespace smddp {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr int kPiecesInFlight = 4;
static_assert(kPiecesInFlight <= kMaxStepsInFlight);

// Receives one piece from the parent and forwards it to the children.
TaskPtr PassOn(Transport& transport, const TreePlace& place, Tag tag, BufferView bytes) {
  const auto receive = [place, tag, bytes](Transfers* transfers) {
    return place.parent >= 0 ? transfers->Recv(place.parent, tag, bytes) : Status::Ok();
  };
  const auto send = [place, tag, bytes](Transfers* transfers) {
    for (int child : place.children) SMDDP_RETURN_IF_ERROR(transfers->Send(child, tag, bytes));
    return Status::Ok();
  };
  return InStages("broadcast", transport, {receive, send});
}

std::vector<BufferView> CutIntoPieces(const std::vector<BufferView>& buffers) {
  std::vector<BufferView> pieces;
  for (const BufferView& buffer : buffers) {
    for (size_t at = 0; at < buffer.size; at += kPieceBytes) {
      pieces.push_back(buffer.Slice(at, std::min(kPieceBytes, buffer.size - at)));
    }
  }
  return pieces;
}

}  // namespace

TaskPtr TreeBroadcast(const Fabric& fabric, uint32_t operation, int root, std::vector<BufferView> buffers) {
  const TreePlace place = BinomialTree(fabric.topology.size(), root, fabric.topology.rank());
  const std::vector<BufferView> pieces = CutIntoPieces(buffers);
  return Pipeline(static_cast<int>(pieces.size()), kPiecesInFlight, [&fabric, operation, place, pieces](int index) {
    const Tag tag = {operation, 0, static_cast<uint16_t>(index)};
    return PassOn(fabric.transport, place, tag, pieces[index]);
  });
}

}  // namespace smddp
