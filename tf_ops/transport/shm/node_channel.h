// One rank's view of the shared memory of its node: it writes into slots of its own segment, notifies the readers,
// and reads the slots of others in place. Nothing is copied here.
//
// Life of a slot: Reserve (mine) -> write -> Publish to readers -> each reader Takes, reads, Returns -> Release (I am
// done too) -> free. A slot without holders is free.
//
// Where the node's ranks map the memory of one another's tensors, a slot may refer to it (SlotWriter). Its owner keeps
// the slot until Returned, and the tensors unchanged.
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
  // True when all readers of a slot that I hold have returned it.
  bool Returned(const Slot& slot) const;
  // True when the node's ranks can read this memory of mine.
  bool shares_tensors() const { return !tensors_.empty(); }
  bool Shares(const void* data, size_t bytes) const;

  // The oldest note of `peer` under `tag` that has arrived (by Progress).
  bool Take(int peer, const Tag& tag, Loan* loan);
  bool Has(int peer, const Tag& tag) const { return arrived_.count(Key(peer, PackTag(tag))) != 0; }
  void Return(const Loan& loan);

  // Copies notes' data that have arrived and were not taken into private memory and returns the slots; true when
  // there were any. The number of slots is small: without this, a rank that is not ready for the data of others could
  // block them.
  bool Evacuate();

  // Control messages: `from` is a position in the node.
  void PostControl(int peer, std::string message);
  bool PollControl(Message* message);
  // A peer that has left reads nothing any more: drops the messages queued for it.
  void Forget(int peer);

  // Reads the inbox rings and sends waiting control messages; true when something moved. Returns an error for values
  // that no correct rank writes: other ranks can write to the segments, so their contents are checked.
  Result<bool> Progress();
  bool busy() const { return !outgoing_control_.empty(); }

 private:
  // The limit of control slots held for one peer that does not read its inbox (it may have left).
  static constexpr int kControlSlotsPerPeer = 2;

  struct Outgoing {
    int peer;
    std::string bytes;
    size_t sent = 0;
  };

  friend class SlotWriter;

  void Publish(const SlotNote& note, const std::vector<int>& readers);
  void Announce(int reader, const SlotNote& note);
  Status DrainInbox(int sender, bool* moved);
  Status Damaged(int member, const std::string& what) const;
  bool SendControl();
  bool SendPiece(Outgoing* message, Slot* slot);  // true: that was the last piece
  int ControlInFlight(int peer) const;
  Status Accept(int sender, const SlotNote& note);
  // The data that the note's extents name. An error for those outside of the sender's memory.
  Status Find(int sender, const SlotNote& note, std::vector<Loan::Part>* parts) const;
  static uint64_t Key(int peer, uint32_t tag) { return (uint64_t(peer) << 32) | tag; }

  const int position_;
  const NodeLayout layout_;
  const std::vector<std::byte*> segments_;
  const std::vector<BufferView> tensors_;
  std::atomic<int64_t> bytes_published_{0}, bytes_referred_{0};  // read by any thread
  int next_slot_[kPoolCount] = {};                               // where Reserve looks first
  std::vector<uint32_t> written_;  // by reader: the number of notes sent to it; kept here because the shared copy can
                                   // be changed by others
  std::vector<uint32_t> read_;     // by sender: the notes that were read
  Status damaged_;                 // not OK: what Publish found
  struct Arrived {
    SlotNote note;
    std::shared_ptr<std::byte[]> copy;
    std::vector<Loan::Part> parts;
  };
  std::unordered_map<uint64_t, std::deque<Arrived>> arrived_;
  std::vector<std::string> half_read_;  // by sender: the control message that is arriving
  std::deque<Message> control_inbox_;
  std::deque<Outgoing> outgoing_control_;
  int control_reader_[NodeLayout::kSlotsPerPool] = {};  // the last receiver of the slot
};

}  // namespace smddp
