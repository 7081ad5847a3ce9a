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
  const size_t bytes = chunk.bytes_of(expected);
  bool whole_elements = true;
  for (const Loan::Part& part : loan.parts) whole_elements &= part.memory.size % chunk.element_size() == 0;
  if (loan.memory.size == bytes && whole_elements) return Status::Ok();
  return Status(Reason::kInternal, "Rank " + std::to_string(chunk.fabric.topology.node().world_rank(loan.peer)) +
                                       " published " + std::to_string(loan.memory.size) + " bytes of chunk " +
                                       std::to_string(chunk.index) + " instead of " + std::to_string(bytes) +
                                       ". Do all ranks run the same version of smddp_tf?");
}

// Where a contribution is read, element after element.
class Contribution {
 public:
  // `begin`: the element of the view with which a loan without parts begins.
  Contribution(const Loan& loan, int64_t begin, Range slice, size_t element_size)
      : loan_(loan), element_size_(static_cast<int64_t>(element_size)), end_(slice.begin) {
    if (loan.parts.empty()) {
      data_ = loan.memory.data + (slice.begin - begin) * element_size_;
      end_ = slice.end;
      begin_ = slice.begin;
    }
  }

  // The address of element `at` of the view; `end`: no later than this the memory ends. Elements are asked for in
  // order.
  const std::byte* At(int64_t at, int64_t* end) {
    for (; at >= end_; ++part_) {
      data_ = loan_.parts[part_].memory.data;
      begin_ = end_;
      end_ += static_cast<int64_t>(loan_.parts[part_].memory.size) / element_size_;
    }
    *end = std::min(*end, end_);
    return data_ + (at - begin_) * element_size_;
  }

 private:
  const Loan& loan_;
  const int64_t element_size_;
  const std::byte* data_ = nullptr;  // of [begin_, end_)
  int64_t begin_ = 0, end_;
  size_t part_ = 0;  // the next one
};

// The pieces of my slice where the others can read some of my outputs, which need no packing; none otherwise.
std::vector<PieceRange> SharedOutputs(const Chunk& chunk) {
  if (!chunk.fabric.node.shares_tensors() || !chunk.call.view->outputs_are_packed()) return {};
  std::vector<PieceRange> pieces = chunk.call.view->PieceRanges(chunk.my_slice());
  const bool some = std::any_of(pieces.begin(), pieces.end(),
                                [&](const PieceRange& piece) { return chunk.Shares(piece.output, piece.range); });
  return some ? pieces : std::vector<PieceRange>();
}

// Adds a piece: a reference to `data`, where the others can read it there; else what `copy` writes.
template <class Copy>
void AddPiece(const Chunk& chunk, const PieceRange& piece, const void* data, SlotWriter* writer, Copy copy) {
  if (chunk.Shares(data, piece.range)) {
    writer->Refer(data, chunk.bytes_of(piece.range));
  } else {
    copy(writer->Append(chunk.bytes_of(piece.range)));
  }
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
    if (Refer(slot)) {
      chunk_->contribution = slot;
      return Progress::kDone;
    }
    for (int reducer : reducers_) {
      const Range slice = chunk_->slice_of(reducer);
      const size_t offset = chunk_->bytes_of({chunk_->range.begin, slice.begin});
      chunk_->call.view->Pack(slice, slot.memory.data + offset);
    }
    node.Publish(slot, chunk_->tag(kNodeReduceScatterStage), chunk_->range.size() * chunk_->element_size(), reducers_);
    node.Release(&slot);
    return Progress::kDone;
  }
  std::string Describe() const override { return "node reduce-scatter, waiting for room in shared memory"; }

 private:
  // Publishes where the inputs lie. False: the others cannot read enough of them there, nothing was published.
  bool Refer(const Slot& slot) {
    const FusedView& view = *chunk_->call.view;
    NodeChannel& node = chunk_->fabric.node;
    if (!node.shares_tensors() || !view.inputs_are_packed()) return false;
    std::vector<std::vector<PieceRange>> pieces;
    size_t referred = 0;
    for (int reducer : reducers_) {
      pieces.push_back(view.PieceRanges(chunk_->slice_of(reducer)));
      for (const PieceRange& piece : pieces.back()) {
        if (chunk_->Shares(piece.input, piece.range)) referred += chunk_->bytes_of(piece.range);
      }
    }
    // Leaves room for the table: an extent for each reducer, and two for each reference of kLeastReferredBytes.
    if (referred < 2 * sizeof(Extent) * std::max<size_t>(1, reducers_.size())) return false;
    SlotWriter writer(node, slot);
    for (size_t i = 0; i < reducers_.size(); ++i) {
      for (const PieceRange& piece : pieces[i]) {
        AddPiece(*chunk_, piece, piece.input, &writer, [&](std::byte* into) { view.Pack(piece.range, into); });
      }
      writer.Publish(chunk_->tag(kNodeReduceScatterStage), {reducers_[i]});
    }
    return true;
  }

  std::shared_ptr<Chunk> chunk_;
  const std::vector<int> reducers_;
};

class SumTask : public Task {
 public:
  explicit SumTask(std::shared_ptr<Chunk> chunk)
      : chunk_(std::move(chunk)),
        slice_(chunk_->my_slice()),
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
      Loan& loan = loans_[member];
      node().Take(member, tag, &loan, /*in_parts=*/true);
      SMDDP_RETURN_IF_ERROR(CheckLength(*chunk_, loan, loan.parts.empty() ? chunk_->range : slice_));
    }
    return true;
  }

  bool Room() {
    const size_t bytes = slice_.size() * chunk_->element_size();
    if (chunk_->readers().empty() || chunk_->crosses_nodes()) {
      chunk_->private_memory.reset(new std::byte[bytes]);
      chunk_->sum = {chunk_->private_memory.get(), bytes};
      return true;
    }
    if (!node().Reserve(Pool::kResult, &chunk_->slot)) return false;
    chunk_->sum = chunk_->slot.memory.Slice(0, bytes);
    return true;
  }

  void Sum() {
    for (int member : others_) {
      contributions_.emplace_back(loans_[member], chunk_->range.begin, slice_, chunk_->element_size());
    }
    const auto pieces = chunk_->slot.held() ? SharedOutputs(*chunk_) : std::vector<PieceRange>();
    if (pieces.empty()) {
      SumRange(slice_, chunk_->sum.data, /*to_output=*/false);
    } else {
      chunk_->result = std::make_unique<SlotWriter>(node(), chunk_->slot);
      for (const PieceRange& piece : pieces) SumPiece(piece);
    }
    contributions_.clear();
    for (int member : others_) node().Return(loans_[member]);
  }

  // To my output, where the others can read it there.
  void SumPiece(const PieceRange& piece) {
    const size_t bytes = chunk_->bytes_of(piece.range);
    const bool shared = chunk_->Shares(piece.output, piece.range);
    SumRange(piece.range, shared ? piece.output : chunk_->result->Append(bytes), shared);
    if (shared) chunk_->result->Refer(piece.output, bytes);
  }

  // Works in blocks, so that a sum is copied to my output while it is in the L1 cache.
  void SumRange(Range range, std::byte* into, bool to_output) {
    const int64_t each = kBlockBytes / static_cast<int64_t>(chunk_->element_size());
    for (Range block = {range.begin, range.begin}; block.begin < range.end; block.begin = block.end) {
      block.end = std::min(range.end, block.begin + each);
      std::byte* const sum = into + (block.begin - range.begin) * chunk_->element_size();
      SumBlock(&block, sum);
      if (to_output) {
        view().Finish(sum, block.size());
      } else if (!chunk_->crosses_nodes()) {
        view().Unpack(block, sum);
      }
    }
  }

  // May end the block earlier, where a contribution's memory does.
  void SumBlock(Range* block, std::byte* sum) {
    if (chunk_->gathers()) return view().Pack(*block, sum);
    for (size_t i = 0; i < others_.size(); ++i) {
      sources_[others_[i]] = contributions_[i].At(block->begin, &block->end);
    }
    sources_[chunk_->me()] = Mine(*block, sum);
    chunk_->fabric.compute.Reduce(sum, sources_.data(), static_cast<int>(sources_.size()), block->size(), view().wire(),
                                  chunk_->call.op);
  }

  // My own contribution: in place, or packed to where the sum will be stored if it must be converted.
  const void* Mine(Range block, std::byte* sum) const {
    if (const void* direct = view().Direct(block)) return direct;
    view().Pack(block, sum);
    return sum;
  }

  const FusedView& view() const { return *chunk_->call.view; }

  std::shared_ptr<Chunk> chunk_;
  const Range slice_;  // mine
  const std::vector<int> others_;
  std::vector<Loan> loans_;                  // by local rank
  std::vector<Contribution> contributions_;  // of the others, in their order
  std::vector<const void*> sources_;         // by local rank, of one block
  int waiting_for_ = 0;
};

class PublishTask : public Task {
 public:
  explicit PublishTask(std::shared_ptr<Chunk> chunk) : chunk_(std::move(chunk)) {}

  Result<Progress> Step() override {
    NodeChannel& node = chunk_->fabric.node;
    const std::vector<int> readers = chunk_->readers();
    if (!readers.empty()) {
      const Tag tag = chunk_->tag(kNodeAllgatherStage);
      if (!chunk_->slot.held() && !node.Reserve(Pool::kResult, &chunk_->slot)) return Progress::kWaiting;
      if (chunk_->private_memory != nullptr) FillSlot();
      if (chunk_->result != nullptr) {
        chunk_->result->Publish(tag, readers);
      } else {
        node.Publish(chunk_->slot, tag, chunk_->sum.size, readers);
      }
    }
    if (chunk_->crosses_nodes() && chunk_->result == nullptr) view().Unpack(chunk_->my_slice(), chunk_->sum.data);
    if (chunk_->slot.held() && chunk_->result == nullptr) node.Release(&chunk_->slot);
    chunk_->private_memory.reset();
    return Progress::kDone;
  }
  std::string Describe() const override { return "node allgather, waiting for room in shared memory"; }

 private:
  // With a sum that came from other nodes.
  void FillSlot() {
    const std::byte* const sum = chunk_->sum.data;
    const std::vector<PieceRange> pieces = SharedOutputs(*chunk_);
    if (pieces.empty()) {
      std::memcpy(chunk_->slot.memory.data, sum, chunk_->sum.size);
      return;
    }
    const Range slice = chunk_->my_slice();
    view().Unpack(slice, sum);
    chunk_->result = std::make_unique<SlotWriter>(chunk_->fabric.node, chunk_->slot);
    for (const PieceRange& piece : pieces) {
      AddPiece(*chunk_, piece, piece.output, chunk_->result.get(), [&](std::byte* into) {
        std::memcpy(into, sum + chunk_->bytes_of({slice.begin, piece.range.begin}), chunk_->bytes_of(piece.range));
      });
    }
  }

  const FusedView& view() const { return *chunk_->call.view; }

  std::shared_ptr<Chunk> chunk_;
};

class CollectTask : public Task {
 public:
  explicit CollectTask(std::shared_ptr<Chunk> chunk) : chunk_(std::move(chunk)), missing_(chunk_->sources()) {}

  Result<Progress> Step() override {
    bool moved = false;
    for (auto reducer = missing_.begin(); reducer != missing_.end();) {
      Loan loan;
      if (!chunk_->fabric.node.Take(*reducer, chunk_->tag(kNodeAllgatherStage), &loan, /*in_parts=*/true)) {
        ++reducer;
        continue;
      }
      SMDDP_RETURN_IF_ERROR(CheckLength(*chunk_, loan, chunk_->slice_of(*reducer)));
      Unpack(chunk_->slice_of(*reducer), loan);
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
  void Unpack(Range slice, const Loan& loan) {
    const FusedView& view = *chunk_->call.view;
    if (loan.parts.empty()) return view.Unpack(slice, loan.memory.data);
    for (const auto& [memory, of_tensor] : loan.parts) {
      const int64_t elements = static_cast<int64_t>(memory.size / chunk_->element_size());
      view.Unpack({slice.begin, slice.begin + elements}, memory.data, of_tensor);
      slice.begin += elements;
    }
  }

  std::shared_ptr<Chunk> chunk_;
  std::vector<int> missing_;
};

}  // namespace

TaskPtr PublishContribution(std::shared_ptr<Chunk> chunk) { return std::make_unique<ContributeTask>(std::move(chunk)); }
TaskPtr SumMySlice(std::shared_ptr<Chunk> chunk) { return std::make_unique<SumTask>(std::move(chunk)); }
TaskPtr PublishSum(std::shared_ptr<Chunk> chunk) { return std::make_unique<PublishTask>(std::move(chunk)); }
TaskPtr CollectSums(std::shared_ptr<Chunk> chunk) { return std::make_unique<CollectTask>(std::move(chunk)); }
TaskPtr AwaitReaders(std::shared_ptr<Chunk> chunk, Slot* slot) {
  if (!slot->held()) return nullptr;
  return Until("node stage, waiting for local ranks to read shared tensors", [chunk, slot]() -> Result<bool> {
    NodeChannel& node = chunk->fabric.node;
    if (node.holders(slot->index) > 1) return false;
    node.Release(slot);
    return true;
  });
}

}  // namespace smddp
