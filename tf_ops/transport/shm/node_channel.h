// One rank's view of the shared memory of its node: it writes into slots of its own segment, notifies the readers,
// and reads the slots of others in place. Nothing is copied here. What the slots of control messages hold is
// node_control.h's.
//
// Life of a slot: Reserve (mine) -> write -> Publish to readers -> each reader Takes, reads, Returns -> Release (I am
// done too) -> free. A slot without holders is free.
//
// Where the node's ranks map the memory of one another's tensors, a slot may refer to it (SlotWriter). Its owner keeps
// the slot until its readers have returned it, and the tensors unchanged until then.
//
// Threads: one, the engine's. The peers are other processes (or threads, in tests).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "transport/shm/node_layout.h"
#include "transport/transport.h"

namespace smddp {

struct Slot {
  int index = -1;
  BufferView memory;

  bool held() const { return index >= 0; }
};

// A slot of another rank, readable until it is returned.
struct Loan {
  struct Part {
    BufferView memory;
    bool of_tensor;
  };

  int peer = -1;
  int index = -1;
  BufferView memory;  // exactly the published bytes; without an address where there are `parts`
  bool last = true;
  std::shared_ptr<std::byte[]> copy;  // set: the slot was evacuated, and this is a copy of its contents
  std::vector<Part> parts;            // of what was published in extents
};

class NodeChannel {
 public:
  // `segments[p]` is the segment of the node's member p, `tensors[p]` the memory of its tensors as it is mapped here;
  // all outlive this object. No `tensors`: they are not shared.
  NodeChannel(int position, const NodeLayout& layout, std::vector<std::byte*> segments,
              std::vector<BufferView> tensors = {});

  int position() const { return position_; }
  int size() const { return layout_.members; }
  const std::vector<int>& others() const { return others_; }  // the other members
  Doorbell& doorbell() { return *layout_.doorbell(segments_[position_]); }
  // Beat: shows the node that this rank is alive. The other returns when member `peer` last did so (node_layout.h
  // beat).
  void Beat(int64_t now_ns) { layout_.beat(segments_[position_])->store(now_ns, std::memory_order_relaxed); }
  int64_t BeatOf(int peer) const { return layout_.beat(segments_[peer])->load(std::memory_order_relaxed); }
  int64_t bytes_published() const { return bytes_published_.load(std::memory_order_relaxed); }  // any thread
  // Of these, what was not copied (SlotWriter::Refer).
  int64_t bytes_referred() const { return bytes_referred_.load(std::memory_order_relaxed); }

  bool Reserve(Pool pool, Slot* slot);
  // May be called once per slot and reader. The writes to the slot are visible to a reader that has taken the note.
  void Publish(const Slot& slot, const Tag& tag, size_t bytes, const std::vector<int>& readers, bool last = true);
  void Release(Slot* slot);
  // How many hold a slot of mine: I, until it is released, and the readers that have not returned it.
  uint32_t holders(int slot) const {
    return layout_.readers(segments_[position_], slot)->load(std::memory_order_acquire);
  }
  // True when the node's ranks can read this memory of mine.
  bool shares_tensors() const { return !tensors_.empty(); }
  bool Shares(const void* data, size_t bytes) const;

  // The oldest note of `peer` under `tag` that has arrived (by Progress).
  // `in_parts`: the caller can read `parts`; else what comes in parts is copied into one piece.
  bool Take(int peer, const Tag& tag, Loan* loan, bool in_parts = false);
  bool Has(int peer, const Tag& tag) const;
  // The next piece of a control message that has arrived, of any peer; its contents are not checked.
  bool TakeControl(Loan* loan) { return TakeOldest(&control_, loan); }
  void Return(const Loan& loan);

  // Copies notes' data that have arrived and were not taken into private memory and returns the slots; true when
  // there were any. The number of slots is small: without this, a rank that is not ready for the data of others could
  // block them.
  bool Evacuate();

  // Reads the inbox rings; true when something has arrived. Returns an error for values that no correct rank writes:
  // other ranks can write to the segments, so their contents are checked.
  Result<bool> Progress();
  // That error: `what` was found in the memory of `member`.
  Status Damaged(int member, const std::string& what) const;

 private:
  friend class SlotWriter;

  void Publish(const SlotNote& note, const std::vector<int>& readers);
  Status Accept(int sender, const SlotNote& note);
  // The data that the note's extents name. An error for those outside of the sender's memory.
  Status Find(int sender, const SlotNote& note, std::vector<Loan::Part>* parts) const;

  const int position_;
  const NodeLayout layout_;
  std::vector<int> others_;
  const std::vector<std::byte*> segments_;
  const std::vector<BufferView> tensors_;
  std::atomic<int64_t> bytes_published_{0}, bytes_referred_{0};  // read by any thread
  int next_slot_[kPoolCount] = {};                               // where Reserve looks first
  std::vector<uint32_t> written_;  // by reader: the number of notes sent to it; kept here because the shared copy can
                                   // be changed by others
  std::vector<uint32_t> read_;     // by sender: the notes that were read
  Status damaged_;                 // not OK: what Publish found
  std::unordered_map<uint64_t, std::deque<Loan>> arrived_;
  std::deque<Loan> control_;  // pieces of control messages, in the order of their arrival
};

// Shorter pieces are copied: they are in the cache, and an extent costs as much.
constexpr size_t kLeastReferredBytes = 2 << 10;

// Writes into a slot what cannot be one copy: pieces that are copied and pieces that stay where my tensors lie, for one
// reader after another.
//
// Contract:  the slot is held until its readers have returned it (NodeChannel::holders), and what is referred to does
// not change until then. What
//            one reader gets is no longer than the slot. References to kLeastReferredBytes or more leave room for the
//            table of extents.
class SlotWriter {
 public:
  SlotWriter(NodeChannel& node, const Slot& slot) : node_(node), slot_(slot) {}

  // Appends bytes for the caller to write.
  std::byte* Append(size_t bytes);
  // Appends memory of my tensors (NodeChannel::Shares).
  void Refer(const void* data, size_t bytes);
  // Publishes what was appended since the last call.
  void Publish(const Tag& tag, const std::vector<int>& readers);

 private:
  void Add(uint64_t offset, size_t bytes, bool of_tensor);

  NodeChannel& node_;
  const Slot slot_;
  size_t copied_ = 0;
  int extents_ = 0, published_ = 0;
  size_t bytes_ = 0, referred_ = 0;  // not yet published
  Extent last_;
};

}  // namespace smddp
