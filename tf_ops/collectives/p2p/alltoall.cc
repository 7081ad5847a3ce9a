#include "collectives/p2p/alltoall.h"

#include <algorithm>
#include <utility>

#include "collectives/transfers.h"
#include "core/shape.h"

namespace smddp {
namespace {

constexpr uint8_t kRowCountsStage = 0;
constexpr uint8_t kRowsStage = 1;
constexpr int kRoundsInFlight = 4;

// Block r of `out` goes to rank r; block r of `in` comes from rank r. My own block is copied.
TaskPtr Exchange(const Fabric& fabric, Tag tag, std::vector<BufferView> out, std::vector<BufferView> in) {
  const int size = fabric.topology.size(), me = fabric.topology.rank();
  std::vector<TaskPtr> both;
  if (TaskPtr mine = Copy(in[me], out[me].data)) both.push_back(std::move(mine));
  const auto round = [&fabric, tag, size, me, out = std::move(out), in = std::move(in)](int index) {
    const int to = (me + index + 1) % size, from = (me + size - index - 1) % size;
    return InStages("alltoall", fabric.transport, {[=, out = out[to], in = in[from]](Transfers* transfers) {
                      SMDDP_RETURN_IF_ERROR(transfers->Recv(from, tag, in));
                      return transfers->Send(to, tag, out);
                    }});
  };
  both.push_back(Pipeline(size - 1, kRoundsInFlight, round));
  return Parallel(std::move(both));
}

// Consecutive blocks of `rows[r]` rows.
std::vector<BufferView> Blocks(const void* base, const std::vector<int64_t>& rows, size_t row_bytes) {
  std::vector<BufferView> blocks;
  std::byte* at = static_cast<std::byte*>(const_cast<void*>(base));
  for (int64_t count : rows) {
    blocks.emplace_back(at, static_cast<size_t>(count) * row_bytes);
    at += blocks.back().size;
  }
  return blocks;
}

class AlltoallTask : public Task {
 public:
  AlltoallTask(const Fabric& fabric, AlltoallCall call)
      : fabric_(fabric), call_(std::move(call)), received_(call_.splits.size()) {
    const std::vector<int64_t> one(call_.splits.size(), 1);
    running_ =
        Exchange(fabric_, {call_.operation, kRowCountsStage, 0}, Blocks(call_.splits.data(), one, sizeof(int64_t)),
                 Blocks(received_.data(), one, sizeof(int64_t)));
  }

  Result<Progress> Step() override {
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, running_->Step());
    if (progress != Progress::kDone || rows_follow_) return progress;
    rows_follow_ = true;
    SMDDP_RETURN_IF_ERROR(CheckReceived());
    SMDDP_ASSIGN_OR_RETURN(void* result, call_.allocate(received_));
    running_ = Exchange(fabric_, {call_.operation, kRowsStage, 0}, Blocks(call_.input, call_.splits, call_.row_bytes),
                        Blocks(result, received_, call_.row_bytes));
    return Progress::kMoved;
  }
  std::string Describe() const override { return running_->Describe(); }

 private:
  Status CheckReceived() const {
    const int64_t most = kMaxElements / std::max<int64_t>(1, static_cast<int64_t>(call_.row_bytes));
    for (size_t rank = 0; rank < received_.size(); ++rank) {
      if (received_[rank] >= 0 && received_[rank] <= most) continue;
      return OtherVersion("Rank ", fabric_.topology.global_rank(static_cast<int>(rank)), " wants to send ",
                          received_[rank], " rows in an alltoall");
    }
    return Status::Ok();
  }

  const Fabric& fabric_;
  const AlltoallCall call_;
  std::vector<int64_t> received_;  // rows received from each rank
  TaskPtr running_;
  bool rows_follow_ = false;
};

}  // namespace

TaskPtr PairwiseAlltoall(const Fabric& fabric, AlltoallCall call) {
  return std::make_unique<AlltoallTask>(fabric, std::move(call));
}

}  // namespace smddp
