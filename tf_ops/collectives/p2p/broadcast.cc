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
class PieceTask : public Task {
 public:
  PieceTask(Transport& transport, TreePlace place, Tag tag, BufferView bytes)
      : place_(std::move(place)), tag_(tag), bytes_(bytes), transfers_(transport) {}

  Result<Progress> Step() override {
    if (phase_ == Phase::kStart) {
      if (place_.parent >= 0) SMDDP_RETURN_IF_ERROR(transfers_.Recv(place_.parent, tag_, bytes_));
      phase_ = Phase::kReceive;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool done, transfers_.AllDone());
    if (!done) return Progress::kWaiting;
    if (phase_ == Phase::kSend) return Progress::kDone;
    for (int child : place_.children) SMDDP_RETURN_IF_ERROR(transfers_.Send(child, tag_, bytes_));
    phase_ = Phase::kSend;
    return Progress::kMoved;
  }
  std::string Describe() const override { return "broadcast, " + transfers_.Describe(); }

 private:
  enum class Phase { kStart, kReceive, kSend };

  const TreePlace place_;
  const Tag tag_;
  const BufferView bytes_;
  Transfers transfers_;
  Phase phase_ = Phase::kStart;
};

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
    return std::make_unique<PieceTask>(fabric.transport, place, tag, pieces[index]);
  });
}

}  // namespace smddp
