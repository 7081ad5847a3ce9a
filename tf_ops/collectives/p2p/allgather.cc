#include "collectives/p2p/allgather.h"

#include "collectives/transfers.h"

namespace smddp {
namespace {

class RingAllgatherTask : public Task {
 public:
  RingAllgatherTask(const Fabric& fabric, uint32_t operation, std::vector<BufferView> blocks)
      : rank_(fabric.topology.rank()),
        size_(fabric.topology.size()),
        operation_(operation),
        blocks_(std::move(blocks)),
        transfers_(fabric.transport) {}

  Result<Progress> Step() override {
    SMDDP_ASSIGN_OR_RETURN(const bool done, transfers_.AllDone());
    if (!done) return Progress::kWaiting;
    if (step_ == size_ - 1) return Progress::kDone;
    SMDDP_RETURN_IF_ERROR(StartStep());
    ++step_;
    return Progress::kMoved;
  }
  std::string Describe() const override {
    return "ring allgather, step " + std::to_string(step_) + " of " + std::to_string(size_ - 1) + ", " +
           transfers_.Describe();
  }

 private:
  int Wrap(int rank) const { return (rank % size_ + size_) % size_; }

  Status StartStep() {
    const Tag tag = {operation_, 0, static_cast<uint16_t>(step_)};
    const BufferView out = blocks_[Wrap(rank_ - step_)];
    const BufferView in = blocks_[Wrap(rank_ - step_ - 1)];
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(Wrap(rank_ - 1), tag, in));
    return transfers_.Send(Wrap(rank_ + 1), tag, out);
  }

  const int rank_, size_;
  const uint32_t operation_;
  const std::vector<BufferView> blocks_;
  Transfers transfers_;
  int step_ = 0;
};

}  // namespace

TaskPtr RingAllgather(const Fabric& fabric, uint32_t operation, std::vector<BufferView> blocks) {
  return std::make_unique<RingAllgatherTask>(fabric, operation, std::move(blocks));
}

}  // namespace smddp
