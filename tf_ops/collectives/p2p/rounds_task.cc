#include "collectives/p2p/rounds_task.h"

#include <algorithm>
#include <memory>

#include "collectives/fabric.h"
#include "collectives/transfers.h"
#include "core/slice.h"

namespace smddp {
namespace {

class RoundsTask : public Task {
 public:
  RoundsTask(std::string name, const Group& group, Transport& transport, const RailCall& call, Rounds rounds,
             Combine combine)
      : name_(std::move(name)),
        group_(group),
        call_(call),
        rounds_(std::move(rounds)),
        combine_(std::move(combine)),
        transfers_(transport) {
    size_t most = 0;
    for (const Round& round : rounds_.list) {
      if (round.recv_from >= 0 && adds(round)) most = std::max(most, BytesOf(round.recv).size);
    }
    received_.reset(new std::byte[most]);
  }

  Result<Progress> Step() override {
    bool moved = false;
    while (true) {
      if (combining_ != nullptr) {
        SMDDP_ASSIGN_OR_RETURN(const Progress progress, combining_->Step());
        if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
        combining_ = nullptr;
      }
      if (!under_way_) {
        if (next_ == rounds_.list.size()) return Progress::kDone;
        SMDDP_RETURN_IF_ERROR(Start(rounds_.list[next_]));
        under_way_ = true;
      }
      SMDDP_ASSIGN_OR_RETURN(const bool done, transfers_.AllDone());
      if (!done) return moved ? Progress::kMoved : Progress::kWaiting;
      combining_ = Finish(rounds_.list[next_++]);
      under_way_ = false;
      moved = true;
    }
  }

  std::string Describe() const override {
    return Concat(name_, ", round ", next_ + 1, " of ", rounds_.list.size(), ", ", transfers_.Describe());
  }

 private:
  static bool adds(const Round& round) { return round.then != Round::Then::kKeep; }

  BufferView BytesOf(BlockSpan blocks) const {
    const size_t each = SizeOf(call_.dtype);
    const int64_t begin = SliceOf(call_.elements, each, rounds_.blocks, blocks.first).begin;
    const int64_t end = SliceOf(call_.elements, each, rounds_.blocks, blocks.first + blocks.count - 1).end;
    return call_.data.Slice(begin * each, (end - begin) * each);
  }

  Status Start(const Round& round) {
    const Tag tag = {call_.operation, kRailReduceScatterStage, call_.step};
    if (round.recv_from >= 0) {
      const BufferView into = BytesOf(round.recv);
      const BufferView place = adds(round) ? BufferView{received_.get(), into.size} : into;
      SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(round.recv_from), tag, place));
    }
    if (round.send_to < 0) return Status::Ok();
    return transfers_.Send(group_.world_rank(round.send_to), tag, BytesOf(round.send));
  }

  TaskPtr Finish(const Round& round) {
    if (round.recv_from < 0 || !adds(round)) return nullptr;
    const BufferView mine = BytesOf(round.recv);
    if (mine.size == 0) return nullptr;
    const void* sources[] = {mine.data, received_.get()};
    if (round.then == Round::Then::kAddBeforeMine) std::swap(sources[0], sources[1]);
    return combine_(mine.data, sources[0], sources[1], static_cast<int64_t>(mine.size / SizeOf(call_.dtype)));
  }

  const std::string name_;
  const Group& group_;
  const RailCall call_;
  const Rounds rounds_;
  const Combine combine_;
  Transfers transfers_;
  std::unique_ptr<std::byte[]> received_;  // received data that is not yet added
  size_t next_ = 0;
  bool under_way_ = false;
  TaskPtr combining_;  // of the round before `next_`; null: done
};

}  // namespace

TaskPtr RunRounds(std::string name, const Group& group, Transport& transport, const RailCall& call, Rounds rounds,
                  Combine combine) {
  return std::make_unique<RoundsTask>(std::move(name), group, transport, call, std::move(rounds), std::move(combine));
}

}  // namespace smddp
