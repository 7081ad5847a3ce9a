// Every rank's bytes to all ranks, each byte once over a node's link. The bytes of a node's ranks, one after another,
// are its node block. Chunk by chunk, for all node blocks at once:
//
//   1. every rank publishes its own bytes to its node, where the others copy them into their results
//   2. each rail passes its share of every node block round a ring of the nodes
//   3. the rail's member publishes what arrives to its node
//
// A broadcast is the case where one rank has everything: its chunks pass the nodes as a chain. Lengths are known, so
// nothing but the bytes is sent. What a rank waits for from another node is received into the result or private
// memory, never into a slot, so docs/decisions/0002 holds.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "collectives/hierarchical.h"
#include "collectives/transfers.h"
#include "core/slice.h"

namespace smddp {
namespace {

constexpr int64_t kMessageBytes = 32 << 10;  // longer ones are slower: docs/decisions/0007, 0020

// At most so much of a node's bytes is in one chunk.
int64_t PieceBytes(const Fabric& fabric) {
  if (fabric.topology.node_count() == 1) return fabric.chunk_bytes;
  return std::min(fabric.chunk_bytes / 2, kMessageBytes * fabric.topology.rail_count());
}

// Bytes that lie in pieces.
class Bytes {
 public:
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  void Append(const BufferView& piece) {
    if (piece.size == 0) return;
    ends_.push_back(size() + static_cast<int64_t>(piece.size));
    pieces_.push_back(piece);
  }
  void Append(const Bytes& other, Range range) {
    size_t at = std::upper_bound(other.ends_.begin(), other.ends_.end(), range.begin) - other.ends_.begin();
    for (; !range.empty(); range.begin = std::min(range.end, other.ends_[at++])) {
      const int64_t offset = range.begin - (other.ends_[at] - static_cast<int64_t>(other.pieces_[at].size));
      Append(other.pieces_[at].Slice(offset, std::min(range.end, other.ends_[at]) - range.begin));
    }
  }
  // In one piece: in place, or `memory`, which is allocated.
  BufferView Whole(std::unique_ptr<std::byte[]>* memory) const {
    if (pieces_.size() == 1) return pieces_.front();
    if (size() > 0) memory->reset(new std::byte[size()]);
    return {memory->get(), static_cast<size_t>(size())};
  }
  void CopyTo(std::byte* to) const {
    for (const BufferView& piece : pieces_) {
      if (piece.data != to) std::memcpy(to, piece.data, piece.size);
      to += piece.size;
    }
  }
  void CopyFrom(const std::byte* from) const {
    for (const BufferView& piece : pieces_) {
      if (piece.data != from) std::memcpy(piece.data, from, piece.size);
      from += piece.size;
    }
  }

 private:
  std::vector<BufferView> pieces_;
  std::vector<int64_t> ends_;  // of the pieces
};

// Chunks are equal parts of every rank's bytes, so that all links and all ranks have work until the last one.
struct Call {
  Call(const Fabric& fabric, uint32_t operation, const std::vector<std::vector<BufferView>>& blocks)
      : fabric(fabric), operation(operation), of_rank(blocks.size()) {
    for (size_t rank = 0; rank < blocks.size(); ++rank) {
      for (const BufferView& piece : blocks[rank]) of_rank[rank].Append(piece);
    }
    int64_t longest = 0;
    for (const Group& node : fabric.topology.nodes()) {
      int64_t of_node = 0;
      for (int rank : node.world_ranks()) of_node += of_rank[rank].size();
      longest = std::max(longest, of_node);
    }
    const int64_t piece = PieceBytes(fabric);
    chunks = static_cast<int>((longest + piece - 1) / piece);
  }

  const Fabric& fabric;
  const uint32_t operation;
  std::vector<Bytes> of_rank;
  int chunks = 0;

  Tag tag(uint8_t stage, int chunk) const { return {operation, stage, static_cast<uint16_t>(chunk)}; }
  // The node whose share arrives in round `round`; round 0: mine.
  int origin(int round) const {
    return (fabric.topology.node_index() - round + fabric.topology.node_count()) % fabric.topology.node_count();
  }
  Range RangeOf(int rank, int chunk) const { return RowsOf(of_rank[rank].size(), chunks, chunk); }
  // What `member` of my node has of the chunk.
  Bytes OwnOf(int member, int chunk) const {
    const int rank = fabric.topology.node().world_rank(member);
    Bytes own;
    own.Append(of_rank[rank], RangeOf(rank, chunk));
    return own;
  }
  // A rail's share of what a node has of the chunk. With equally many bytes of equally many ranks: those of one rank.
  Bytes ShareOf(int node, int chunk, int rail) const {
    Bytes of_node, share;
    for (int rank : fabric.topology.nodes()[node].world_ranks()) of_node.Append(of_rank[rank], RangeOf(rank, chunk));
    share.Append(of_node, RowsOf(of_node.size(), fabric.topology.rail_count(), rail));
    return share;
  }

  // False: no slot is free.
  bool Publish(const Bytes& bytes, Pool pool, const Tag& tag) const {
    const std::vector<int>& others = fabric.node.others();
    if (bytes.size() == 0 || others.empty()) return true;
    Slot slot;
    if (!fabric.node.Reserve(pool, &slot)) return false;
    bytes.CopyTo(slot.memory.data);
    fabric.node.Publish(slot, tag, bytes.size(), others);
    fabric.node.Release(&slot);
    return true;
  }
};
using CallPtr = std::shared_ptr<const Call>;

// Copies what one member of my node publishes under one tag into the result.
TaskPtr Collect(const CallPtr& call, int member, Tag tag, std::deque<Bytes> parts) {
  const int rank = call->fabric.topology.node().world_rank(member);
  auto step = [call, member, tag, rank, parts = std::move(parts)]() mutable -> Result<Progress> {
    bool moved = false;
    for (Loan loan; !parts.empty() && call->fabric.node.Take(member, tag, &loan); moved = true) {
      const auto bytes = static_cast<int64_t>(loan.memory.size), expected = parts.front().size();
      if (bytes == expected) parts.front().CopyFrom(loan.memory.data);
      call->fabric.node.Return(loan);
      if (bytes != expected) return OtherVersion("Rank ", rank, " published ", bytes, " bytes instead of ", expected);
      parts.pop_front();
    }
    if (parts.empty()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  };
  return Repeat(Concat("gathering in the node, waiting for rank ", rank), std::move(step));
}

// My rail's shares of one chunk. All messages of a chunk have one tag; both ends post them in the order of the rounds.
class RailRing : public Task {
 public:
  RailRing(CallPtr call, int chunk)
      : call_(std::move(call)),
        tag_(call_->tag(kRailAllgatherStage, chunk)),
        sends_(call_->fabric.transport),
        rounds_(call_->fabric.topology.node_count()) {
    for (int round = 0; round < rounds_; ++round) {
      shares_.push_back({call_->ShareOf(call_->origin(round), chunk, call_->fabric.topology.local_rank()),
                         Transfers(call_->fabric.transport)});
    }
  }

  Result<Progress> Step() override {
    bool moved = false;
    if (!std::exchange(begun_, true)) SMDDP_RETURN_IF_ERROR(Begin());
    for (; arrived_ < rounds_; ++arrived_) {
      Share& share = shares_[arrived_];
      SMDDP_ASSIGN_OR_RETURN(const bool here, share.receive.AllDone());
      if (!here) break;
      if (arrived_ > 0) share.bytes.CopyFrom(share.whole.data);
      if (arrived_ + 1 < rounds_) SMDDP_RETURN_IF_ERROR(sends_.Send(Neighbour(1), tag_, share.whole));
      moved = true;
    }
    const Tag in_node = {tag_.operation, kNodeAllgatherStage, tag_.step};
    for (; published_ < arrived_; ++published_, moved = true) {
      if (!call_->Publish(shares_[published_].bytes, Pool::kResult, in_node)) break;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool sent, sends_.AllDone());
    if (sent && published_ == rounds_) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  std::string Describe() const override {
    if (published_ < arrived_) return "publishing to the node, waiting for room in shared memory";
    return "ring of nodes, " + (arrived_ < rounds_ ? shares_[arrived_].receive : sends_).Describe();
  }

 private:
  struct Share {
    Bytes bytes;
    Transfers receive;
    std::unique_ptr<std::byte[]> memory = nullptr;
    BufferView whole = {};
  };

  int Neighbour(int step) const {
    return call_->fabric.topology.rail().world_rank((call_->fabric.topology.node_index() + step + rounds_) % rounds_);
  }
  Status Begin() {
    for (int round = 0; round < rounds_; ++round) {
      Share& share = shares_[round];
      share.whole = share.bytes.Whole(&share.memory);
      if (round == 0) share.bytes.CopyTo(share.whole.data);
      if (round > 0) SMDDP_RETURN_IF_ERROR(share.receive.Recv(Neighbour(-1), tag_, share.whole));
    }
    return Status::Ok();
  }

  const CallPtr call_;
  const Tag tag_;
  std::vector<Share> shares_;  // by round
  Transfers sends_;
  const int rounds_;
  bool begun_ = false;
  int arrived_ = 0, published_ = 1;  // rounds; mine is published by its owners
};

// My node's bytes to my node.
TaskPtr GatherOwn(const CallPtr& call, int chunk) {
  std::vector<TaskPtr> branches;
  const Tag tag = call->tag(kNodeReduceScatterStage, chunk);
  branches.push_back(Until("publishing to the node, waiting for room in shared memory",
                           [call, tag, own = call->OwnOf(call->fabric.node.position(), chunk)] {
                             return call->Publish(own, Pool::kContribution, tag);
                           }));
  for (int member : call->fabric.node.others()) {
    Bytes part = call->OwnOf(member, chunk);
    if (part.size() == 0) continue;
    branches.push_back(Collect(call, member, tag, {std::move(part)}));
  }
  return Parallel(std::move(branches));
}

TaskPtr GatherChunk(const CallPtr& call, int chunk) {
  const Topology& topology = call->fabric.topology;
  if (topology.node_count() == 1) return GatherOwn(call, chunk);
  std::vector<TaskPtr> branches;
  branches.push_back(Sequence({[call, chunk] { return GatherOwn(call, chunk); },
                               [call, chunk]() -> TaskPtr {
                                 if (!call->fabric.topology.is_reducer()) return nullptr;
                                 return std::make_unique<RailRing>(call, chunk);
                               }}));
  for (int rail = 0; rail < topology.rail_count(); ++rail) {
    if (rail == topology.local_rank()) continue;
    std::deque<Bytes> parts;
    for (int round = 1; round < topology.node_count(); ++round) {
      Bytes part = call->ShareOf(call->origin(round), chunk, rail);
      if (part.size() > 0) parts.push_back(std::move(part));
    }
    branches.push_back(Collect(call, rail, call->tag(kNodeAllgatherStage, chunk), std::move(parts)));
  }
  return Parallel(std::move(branches));
}

}  // namespace

TaskPtr HierarchicalAllgather(const Fabric& fabric, uint32_t operation,
                              const std::vector<std::vector<BufferView>>& blocks) {
  const CallPtr call = std::make_shared<const Call>(fabric, operation, blocks);
  return Pipeline(call->chunks, ChunksInFlight(fabric.topology),
                  [call](int chunk) { return GatherChunk(call, chunk); });
}

bool TreeIsFaster(const Fabric& fabric, int64_t bytes) {
  const int nodes = fabric.topology.node_count();
  if (nodes <= 2) return false;
  int doublings = 0;
  while ((1 << doublings) < nodes) ++doublings;
  const LinkSpeed& link = fabric.rail.link;
  const double rate = link.bytes_per_s * fabric.topology.rail_count();
  const double chunk = static_cast<double>(std::min(bytes, PieceBytes(fabric))) / rate;
  const double all = static_cast<double>(bytes) / rate;
  return doublings * (link.latency_s + all) < (nodes - 1) * (link.latency_s + chunk) + all - chunk;
}

}  // namespace smddp
