#include "collectives/transfers.h"

#include <algorithm>

namespace smddp {
namespace {

constexpr size_t kMessageBytes = 64 << 20;  // MPI counts in int; shared memory splits further by itself

class StagesTask : public Task {
 public:
  StagesTask(std::string name, Transport& transport, std::vector<TransferStage> stages)
      : name_(std::move(name)), stages_(std::move(stages)), transfers_(transport) {}

  Result<Progress> Step() override {
    for (bool moved = false;; moved = next_ > 1) {
      SMDDP_ASSIGN_OR_RETURN(const bool done, transfers_.AllDone());
      if (!done) return moved ? Progress::kMoved : Progress::kWaiting;
      if (next_ == stages_.size()) return Progress::kDone;
      SMDDP_RETURN_IF_ERROR(stages_[next_++](&transfers_));
    }
  }
  std::string Describe() const override { return name_ + ", " + transfers_.Describe(); }

 private:
  const std::string name_;
  const std::vector<TransferStage> stages_;
  Transfers transfers_;
  size_t next_ = 0;
};

}  // namespace

// All pieces have the same tag: between two ranks they are matched in order.
template <class Start>
Status Transfers::ForEachPiece(int peer, BufferView bytes, Start start) {
  for (size_t at = 0; at < bytes.size; at += kMessageBytes) {
    SMDDP_ASSIGN_OR_RETURN(const Ticket ticket, start(bytes.Slice(at, std::min(kMessageBytes, bytes.size - at))));
    pending_.push_back({ticket, peer});
  }
  return Status::Ok();
}

Status Transfers::Send(int peer, Tag tag, BufferView bytes) {
  return ForEachPiece(peer, bytes, [&](BufferView piece) { return transport_.Send(peer, tag, piece); });
}

Status Transfers::Recv(int peer, Tag tag, BufferView bytes) {
  return ForEachPiece(peer, bytes, [&](BufferView piece) { return transport_.Recv(peer, tag, piece); });
}

Status Transfers::Swap(int peer, Tag tag, BufferView out, BufferView in) {
  SMDDP_RETURN_IF_ERROR(Recv(peer, tag, in));
  return Send(peer, tag, out);
}

Result<bool> Transfers::AllDone() {
  for (auto at = pending_.begin(); at != pending_.end();) {
    SMDDP_ASSIGN_OR_RETURN(const bool done, transport_.Test(at->ticket));
    at = done ? pending_.erase(at) : std::next(at);
  }
  return pending_.empty();
}

std::string Transfers::Describe() const {
  return pending_.empty() ? "nothing to wait for" : "waiting for rank " + std::to_string(pending_.front().peer);
}

TaskPtr InStages(std::string name, Transport& transport, std::vector<TransferStage> stages) {
  return std::make_unique<StagesTask>(std::move(name), transport, std::move(stages));
}

}  // namespace smddp
