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
  return OtherVersion("Rank ", chunk.fabric.topology.node().world_rank(loan.peer), " published ", loan.memory.size,
                      " bytes of chunk ", chunk.index, " instead of ", bytes);
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

// Publishes where the inputs lie. False: the others cannot read enough of them there, nothing was published.
bool ReferToInputs(const Chunk& chunk, const std::vector<int>& reducers, const Slot& slot) {
  const FusedView& view = *chunk.call.view;
  NodeChannel& node = chunk.fabric.node;
  if (!node.shares_tensors() || !view.inputs_are_packed()) return false;
  std::vector<std::vector<PieceRange>> pieces;
  size_t referred = 0;
  for (int reducer : reducers) {
    pieces.push_back(view.PieceRanges(chunk.slice_of(reducer)));
    for (const PieceRange& piece : pieces.back()) {
      if (chunk.Shares(piece.input, piece.range)) referred += chunk.bytes_of(piece.range);
    }
  }
  // Leaves room for the table: an extent for each reducer, and two for each reference of kLeastReferredBytes.
  if (referred < 2 * sizeof(Extent) * std::max<size_t>(1, reducers.size())) return false;
  SlotWriter writer(node, slot);
  for (size_t i = 0; i < reducers.size(); ++i) {
    for (const PieceRange& piece : pieces[i]) {
      AddPiece(chunk, piece, piece.input, &writer, [&](std::byte* into) { view.Pack(piece.range, into); });
    }
    writer.Publish(chunk.tag(kNodeReduceScatterStage), {reducers[i]});
  }
  return true;
}

// False: no slot is free.
bool Contribute(Chunk* chunk, const std::vector<int>& reducers) {
  if (reducers.empty()) return true;
  NodeChannel& node = chunk->fabric.node;
  Slot slot;
  if (!node.Reserve(Pool::kContribution, &slot)) return false;
  if (ReferToInputs(*chunk, reducers, slot)) {
    chunk->contribution = slot;
    return true;
  }
  for (int reducer : reducers) {
    const Range slice = chunk->slice_of(reducer);
    chunk->call.view->Pack(slice, slot.memory.data + chunk->bytes_of({chunk->range.begin, slice.begin}));
  }
  node.Publish(slot, chunk->tag(kNodeReduceScatterStage), chunk->bytes_of(chunk->range), reducers);
  node.Release(&slot);
  return true;
}

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

// Fills the chunk's slot with a sum that came from other nodes.
void FillSlot(Chunk* chunk) {
  const std::byte* const sum = chunk->sum.data;
  const std::vector<PieceRange> pieces = SharedOutputs(*chunk);
  if (pieces.empty()) {
    std::memcpy(chunk->slot.memory.data, sum, chunk->sum.size);
    return;
  }
  const Range slice = chunk->my_slice();
  chunk->call.view->Unpack(slice, sum);
  chunk->result = std::make_unique<SlotWriter>(chunk->fabric.node, chunk->slot);
  for (const PieceRange& piece : pieces) {
    AddPiece(*chunk, piece, piece.output, chunk->result.get(), [&](std::byte* into) {
      std::memcpy(into, sum + chunk->bytes_of({slice.begin, piece.range.begin}), chunk->bytes_of(piece.range));
    });
  }
}

// False: no slot is free.
bool Publish(Chunk* chunk) {
  NodeChannel& node = chunk->fabric.node;
  const std::vector<int> readers = chunk->readers();
  if (!readers.empty()) {
    const Tag tag = chunk->tag(kNodeAllgatherStage);
    if (!chunk->slot.held() && !node.Reserve(Pool::kResult, &chunk->slot)) return false;
    if (chunk->private_memory != nullptr) FillSlot(chunk);
    if (chunk->result != nullptr) {
      chunk->result->Publish(tag, readers);
    } else {
      node.Publish(chunk->slot, tag, chunk->sum.size, readers);
    }
  }
  if (chunk->result == nullptr) {
    if (chunk->crosses_nodes()) chunk->call.view->Unpack(chunk->my_slice(), chunk->sum.data);
    if (chunk->slot.held()) node.Release(&chunk->slot);
  }
  chunk->private_memory.reset();
  return true;
}

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

TaskPtr PublishContribution(std::shared_ptr<Chunk> chunk) {
  const std::vector<int> reducers = chunk->gathers() ? std::vector<int>() : chunk->other_reducers();
  return Until("node reduce-scatter, waiting for room in shared memory",
               [chunk = std::move(chunk), reducers] { return Contribute(chunk.get(), reducers); });
}
TaskPtr SumMySlice(std::shared_ptr<Chunk> chunk) { return std::make_unique<SumTask>(std::move(chunk)); }
TaskPtr PublishSum(std::shared_ptr<Chunk> chunk) {
  return Until("node allgather, waiting for room in shared memory",
               [chunk = std::move(chunk)] { return Publish(chunk.get()); });
}
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
