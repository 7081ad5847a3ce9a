#include "collectives/node/stages.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace smddp {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;

// This rank computes the length it reads itself, so the published length must match.
Status CheckLength(const Chunk& chunk, const Loan& loan, Range expected) {
  const size_t bytes = static_cast<size_t>(expected.size()) * chunk.element_size();
  if (loan.memory.size == bytes) return Status::Ok();
  return Status(Reason::kInternal, "Rank " + std::to_string(chunk.fabric.topology.node().world_rank(loan.peer)) +
                                       " published " + std::to_string(loan.memory.size) + " bytes of chunk " +
                                       std::to_string(chunk.index) + " instead of " + std::to_string(bytes) +
                                       ". Do all ranks run the same version of smddp_tf?");
}

class ContributeTask : public Task {
 public:
  explicit ContributeTask(std::shared_ptr<Chunk> chunk)
      : chunk_(std::move(chunk)), reducers_(chunk_->gathers() ? std::vector<int>() : chunk_->other_reducers()) {}

  Result<Progress> Step() override {
    if (reducers_.empty()) return Progress::kDone;
    NodeChannel& node = chunk_->fabric.node;
    Slot slot;
    if (!node.Reserve(Pool::kContribution, &slot)) return Progress::kWaiting;
    for (int reducer : reducers_) {
      const Range shard = chunk_->shard_of(reducer);
      const size_t offset = (shard.begin - chunk_->range.begin) * chunk_->element_size();
      chunk_->call.view->Pack(shard, slot.memory.data + offset);
    }
    node.Publish(slot, chunk_->tag(kNodeReduceScatterStage), chunk_->range.size() * chunk_->element_size(), reducers_);
    node.Release(&slot);
    return Progress::kDone;
  }
  std::string Describe() const override { return "node reduce-scatter, waiting for room in shared memory"; }

 private:
  std::shared_ptr<Chunk> chunk_;
  const std::vector<int> reducers_;
};

class SumTask : public Task {
 public:
  explicit SumTask(std::shared_ptr<Chunk> chunk)
      : chunk_(std::move(chunk)),
        shard_(chunk_->my_shard()),
        others_(chunk_->contributors()),
        loans_(chunk_->fabric.node.size()),
        sources_(loans_.size()) {}

  Result<Progress> Step() override {
    SMDDP_ASSIGN_OR_RETURN(const bool all_here, AllHere());
    if (!all_here) return Progress::kWaiting;
    if (!Room()) return Progress::kWaiting;
    Sum();
    return Progress::kDone;
  }
  std::string Describe() const override {
    return "node reduce-scatter, waiting for rank " +
           std::to_string(chunk_->fabric.topology.node().world_rank(waiting_for_));
  }

 private:
  NodeChannel& node() const { return chunk_->fabric.node; }

  Result<bool> AllHere() {
    const Tag tag = chunk_->tag(kNodeReduceScatterStage);
    // Takes all contributions or none: one that was taken could not be evacuated while this rank waits for the
    // others.
    for (int member : others_) {
      if (loans_[member].peer >= 0 || node().Has(member, tag)) continue;
      waiting_for_ = member;
      return false;
    }
    for (int member : others_) {
      if (loans_[member].peer >= 0) continue;
      node().Take(member, tag, &loans_[member]);
      SMDDP_RETURN_IF_ERROR(CheckLength(*chunk_, loans_[member], chunk_->range));
    }
    return true;
  }

  bool Room() {
    const size_t bytes = shard_.size() * chunk_->element_size();
    if (chunk_->readers().empty() || chunk_->crosses_nodes()) {
      chunk_->private_memory.reset(new std::byte[bytes]);
      chunk_->sum = {chunk_->private_memory.get(), bytes};
      return true;
    }
    if (!node().Reserve(Pool::kResult, &chunk_->slot)) return false;
    chunk_->sum = chunk_->slot.memory.Slice(0, bytes);
    return true;
  }

  // Works in blocks, so that a sum is copied to my output while it is in the L1 cache.
  void Sum() {
    const int64_t each = kBlockBytes / static_cast<int64_t>(chunk_->element_size());
    for (int64_t at = shard_.begin; at < shard_.end; at += each) {
      const Range block = {at, std::min(shard_.end, at + each)};
      SumBlock(block);
      if (!chunk_->crosses_nodes()) chunk_->call.view->Unpack(block, SumOf(block));
    }
    for (int member : others_) node().Return(loans_[member]);
  }

  void SumBlock(Range block) {
    if (chunk_->gathers()) return chunk_->call.view->Pack(block, SumOf(block));
    for (size_t member = 0; member < loans_.size(); ++member) {
      const bool mine = static_cast<int>(member) == chunk_->me();
      sources_[member] = mine ? Mine(block) : loans_[member].memory.data + chunk_->offset_of(block.begin);
    }
    chunk_->fabric.compute.Reduce(SumOf(block), sources_.data(), static_cast<int>(sources_.size()), block.size(),
                                  chunk_->call.view->wire(), chunk_->call.op);
  }

  std::byte* SumOf(Range block) const {
    return chunk_->sum.data + (block.begin - shard_.begin) * chunk_->element_size();
  }

  // My own contribution: in place, or packed to where the sum will be stored if it must be converted.
  const void* Mine(Range block) const {
    if (const void* direct = chunk_->call.view->Direct(block)) return direct;
    chunk_->call.view->Pack(block, SumOf(block));
    return SumOf(block);
  }

  std::shared_ptr<Chunk> chunk_;
  const Range shard_;  // mine
  const std::vector<int> others_;
  std::vector<Loan> loans_;           // by local rank
  std::vector<const void*> sources_;  // by local rank, of one block
  int waiting_for_ = 0;
};

class PublishTask : public Task {
 public:
  explicit PublishTask(std::shared_ptr<Chunk> chunk) : chunk_(std::move(chunk)) {}

  Result<Progress> Step() override {
    NodeChannel& node = chunk_->fabric.node;
    const std::vector<int> readers = chunk_->readers();
    if (!readers.empty()) {
      if (!chunk_->slot.held()) {
        if (!node.Reserve(Pool::kResult, &chunk_->slot)) return Progress::kWaiting;
        std::memcpy(chunk_->slot.memory.data, chunk_->sum.data, chunk_->sum.size);
      }
      node.Publish(chunk_->slot, chunk_->tag(kNodeAllgatherStage), chunk_->sum.size, readers);
    }
    if (chunk_->crosses_nodes()) chunk_->call.view->Unpack(chunk_->my_shard(), chunk_->sum.data);
    if (chunk_->slot.held()) node.Release(&chunk_->slot);
    chunk_->private_memory.reset();
    return Progress::kDone;
  }
  std::string Describe() const override { return "node allgather, waiting for room in shared memory"; }

 private:
  std::shared_ptr<Chunk> chunk_;
};

class CollectTask : public Task {
 public:
  explicit CollectTask(std::shared_ptr<Chunk> chunk) : chunk_(std::move(chunk)), missing_(chunk_->sources()) {}

  Result<Progress> Step() override {
    bool moved = false;
    for (auto reducer = missing_.begin(); reducer != missing_.end();) {
      Loan loan;
      if (!chunk_->fabric.node.Take(*reducer, chunk_->tag(kNodeAllgatherStage), &loan)) {
        ++reducer;
        continue;
      }
      SMDDP_RETURN_IF_ERROR(CheckLength(*chunk_, loan, chunk_->shard_of(*reducer)));
      chunk_->call.view->Unpack(chunk_->shard_of(*reducer), loan.memory.data);
      chunk_->fabric.node.Return(loan);
      reducer = missing_.erase(reducer);
      moved = true;
    }
    if (missing_.empty()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  std::string Describe() const override {
    return "node allgather, waiting for rank " +
           std::to_string(chunk_->fabric.topology.node().world_rank(missing_.front()));
  }

 private:
  std::shared_ptr<Chunk> chunk_;
  std::vector<int> missing_;
};

}  // namespace

TaskPtr PublishContribution(std::shared_ptr<Chunk> chunk) { return std::make_unique<ContributeTask>(std::move(chunk)); }
TaskPtr SumMyShard(std::shared_ptr<Chunk> chunk) { return std::make_unique<SumTask>(std::move(chunk)); }
TaskPtr PublishSum(std::shared_ptr<Chunk> chunk) { return std::make_unique<PublishTask>(std::move(chunk)); }
TaskPtr CollectSums(std::shared_ptr<Chunk> chunk) { return std::make_unique<CollectTask>(std::move(chunk)); }

}  // namespace smddp
