#include "transport/shm/node_channel.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/sync/test_delay.h"

namespace smddp {

NodeChannel::NodeChannel(int position, const NodeLayout& layout, std::vector<std::byte*> segments,
                         std::vector<BufferView> tensors)
    : position_(position),
      layout_(layout),
      segments_(std::move(segments)),
      tensors_(std::move(tensors)),
      written_(layout.members),
      read_(layout.members),
      half_read_(layout.members) {
  SMDDP_CHECK_OP(static_cast<int>(segments_.size()), ==, layout.members);
}

bool NodeChannel::Reserve(Pool pool, Slot* slot) {
  const int first = static_cast<int>(pool) * NodeLayout::kSlotsPerPool;
  int& next = next_slot_[static_cast<int>(pool)];
  for (int i = 0; i < NodeLayout::kSlotsPerPool; ++i) {
    const int index = first + (next + i) % NodeLayout::kSlotsPerPool;
    std::atomic<uint32_t>& readers = *layout_.readers(segments_[position_], index);
    if (readers.load(std::memory_order_acquire) != 0) continue;
    readers.store(1, std::memory_order_relaxed);  // held by me
    InjectTestDelay();
    next = (index - first + 1) % NodeLayout::kSlotsPerPool;
    slot->index = index;
    slot->memory = {layout_.slot(segments_[position_], index), layout_.capacity_of(index)};
    return true;
  }
  return false;
}

void NodeChannel::Publish(const Slot& slot, const Tag& tag, size_t bytes, const std::vector<int>& readers, bool last) {
  SMDDP_CHECK_OP(bytes, <=, slot.memory.size);
  const bool control = layout_.pool_of(slot.index) == Pool::kControl;
  Publish({PackTag(tag), static_cast<uint32_t>(bytes), static_cast<uint16_t>(slot.index), static_cast<uint8_t>(last),
           static_cast<uint8_t>(control)},
          readers);
}

void NodeChannel::Publish(const SlotNote& note, const std::vector<int>& readers) {
  layout_.readers(segments_[position_], note.slot)
      ->fetch_add(static_cast<uint32_t>(readers.size()), std::memory_order_relaxed);
  for (int reader : readers) Announce(reader, note);
  bytes_published_ += static_cast<int64_t>(note.bytes * readers.size());
}

void NodeChannel::Announce(int reader, const SlotNote& note) {
  NoteRing& ring = *layout_.inbox(segments_[reader], position_);
  uint32_t& at = written_[reader];
  if (at - ring.read.load(std::memory_order_acquire) >= NoteRing::kPlaces) {
    if (damaged_.ok()) damaged_ = Damaged(reader, "it has read notes that were never written");
    return;
  }
  ring.notes[at % NoteRing::kPlaces] = note;
  InjectTestDelay();
  ring.written.store(++at, std::memory_order_release);
  layout_.doorbell(segments_[reader])->Ring();
}

void NodeChannel::Release(Slot* slot) {
  InjectTestDelay();
  layout_.readers(segments_[position_], slot->index)->fetch_sub(1, std::memory_order_release);
  *slot = Slot();
}

bool NodeChannel::Returned(const Slot& slot) const {
  return layout_.readers(segments_[position_], slot.index)->load(std::memory_order_acquire) == 1;
}

bool NodeChannel::Shares(const void* data, size_t bytes) const {
  if (tensors_.empty()) return false;
  const BufferView& mine = tensors_[position_];
  const size_t offset = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(mine.data);
  return offset < mine.size && bytes <= mine.size - offset;
}

bool NodeChannel::Take(int peer, const Tag& tag, Loan* loan) {
  const auto at = arrived_.find(Key(peer, PackTag(tag)));
  if (at == arrived_.end()) return false;
  auto [note, copy, parts] = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) arrived_.erase(at);
  std::byte* data = copy != nullptr ? copy.get() : layout_.slot(segments_[peer], note.slot);
  if (!parts.empty()) data = nullptr;
  *loan = {peer, note.slot, {data, note.bytes}, note.last != 0, std::move(copy), std::move(parts)};
  return true;
}

bool NodeChannel::Evacuate() {
  bool some = false;
  for (auto& [key, arrived] : arrived_) {
    const int peer = static_cast<int>(key >> 32);
    for (Arrived& one : arrived) {
      if (one.copy != nullptr) continue;
      one.copy.reset(new std::byte[one.note.bytes]);
      if (one.parts.empty()) std::memcpy(one.copy.get(), layout_.slot(segments_[peer], one.note.slot), one.note.bytes);
      std::byte* at = one.copy.get();
      for (Loan::Part& part : one.parts) {
        std::memcpy(at, part.memory.data, part.memory.size);
        part.memory.data = at;
        at += part.memory.size;
      }
      Return({peer, one.note.slot, {}, true, nullptr, one.parts});
      some = true;
    }
  }
  return some;
}

void NodeChannel::Return(const Loan& loan) {
  if (loan.copy != nullptr) return;  // returned when it was evacuated
  InjectTestDelay();
  const uint32_t before = layout_.readers(segments_[loan.peer], loan.index)->fetch_sub(1, std::memory_order_release);
  // Its owner may be sleeping until a slot becomes free; or, where it holds one that refers to its tensors, until all
  // readers have returned it.
  if (before == (loan.parts.empty() ? 1 : 2)) layout_.doorbell(segments_[loan.peer])->Ring();
}

void NodeChannel::PostControl(int peer, std::string message) {
  outgoing_control_.push_back({peer, std::move(message)});
  SendControl();
}

bool NodeChannel::PollControl(Message* message) {
  if (control_inbox_.empty()) return false;
  *message = std::move(control_inbox_.front());
  control_inbox_.pop_front();
  return true;
}

void NodeChannel::Forget(int peer) {
  const auto to_peer = [peer](const Outgoing& outgoing) { return outgoing.peer == peer; };
  outgoing_control_.erase(std::remove_if(outgoing_control_.begin(), outgoing_control_.end(), to_peer),
                          outgoing_control_.end());
}

int NodeChannel::ControlInFlight(int peer) const {
  const int first = static_cast<int>(Pool::kControl) * NodeLayout::kSlotsPerPool;
  int count = 0;
  for (int i = 0; i < NodeLayout::kSlotsPerPool; ++i) {
    const bool held = layout_.readers(segments_[position_], first + i)->load(std::memory_order_acquire) != 0;
    count += held && control_reader_[i] == peer ? 1 : 0;
  }
  return count;
}

Result<bool> NodeChannel::Progress() {
  bool moved = SendControl();
  for (int sender = 0; sender < size(); ++sender) SMDDP_RETURN_IF_ERROR(DrainInbox(sender, &moved));
  SMDDP_RETURN_IF_ERROR(damaged_);
  return moved;
}

Status NodeChannel::Damaged(int member, const std::string& what) const {
  return Status(Reason::kInternal, "The shared memory of local rank " + std::to_string(member) + " and local rank " +
                                       std::to_string(position_) + " is damaged: " + what +
                                       ". Do all ranks run the same version of smddp_tf?");
}

bool NodeChannel::SendControl() {
  if (outgoing_control_.empty()) return false;
  bool moved = false;
  std::vector<bool> blocked(size());  // once a peer's message is skipped, its later messages must not overtake it
  for (auto next = outgoing_control_.begin(); next != outgoing_control_.end();) {
    blocked[next->peer] = blocked[next->peer] || ControlInFlight(next->peer) >= kControlSlotsPerPeer;
    if (blocked[next->peer]) {
      ++next;
      continue;
    }
    Slot slot;
    if (!Reserve(Pool::kControl, &slot)) break;
    const bool last = SendPiece(&*next, &slot);
    if (last) next = outgoing_control_.erase(next);
    moved = true;
  }
  return moved;
}

bool NodeChannel::SendPiece(Outgoing* message, Slot* slot) {
  const size_t bytes = std::min(message->bytes.size() - message->sent, slot->memory.size);
  std::memcpy(slot->memory.data, message->bytes.data() + message->sent, bytes);
  message->sent += bytes;
  const bool last = message->sent == message->bytes.size();
  control_reader_[slot->index % NodeLayout::kSlotsPerPool] = message->peer;
  Publish(*slot, Tag{}, bytes, {message->peer}, last);
  Release(slot);
  return last;
}

Status NodeChannel::DrainInbox(int sender, bool* moved) {
  NoteRing& ring = *layout_.inbox(segments_[position_], sender);
  uint32_t& at = read_[sender];
  InjectTestDelay();
  const uint32_t written = ring.written.load(std::memory_order_acquire);
  if (at == written) return Status::Ok();
  if (written - at > NoteRing::kPlaces) return Damaged(sender, "more notes than there are places");
  for (; at != written; ++at) {
    const SlotNote note = ring.notes[at % NoteRing::kPlaces];  // a copy, so that the checked values cannot change
    SMDDP_RETURN_IF_ERROR(Accept(sender, note));
  }
  ring.read.store(at, std::memory_order_release);
  *moved = true;
  return Status::Ok();
}

Status NodeChannel::Accept(int sender, const SlotNote& note) {
  if (note.slot >= NodeLayout::kSlots || note.bytes > layout_.capacity_of(note.slot)) {
    return Damaged(sender, "a note of " + std::to_string(note.bytes) + " bytes in slot " + std::to_string(note.slot));
  }
  if (note.control == 0) {
    Arrived one = {note, nullptr, {}};
    if (note.extents > 0) SMDDP_RETURN_IF_ERROR(Find(sender, note, &one.parts));
    arrived_[Key(sender, note.tag)].push_back(std::move(one));
    return Status::Ok();
  }
  if (half_read_[sender].size() + note.bytes > kMaxControlBytes) {
    return Damaged(sender, "a control message without end");
  }
  const Loan loan = {sender,         note.slot, {layout_.slot(segments_[sender], note.slot), note.bytes},
                     note.last != 0, nullptr,   {}};
  half_read_[sender].append(reinterpret_cast<const char*>(loan.memory.data), loan.memory.size);
  Return(loan);
  if (!loan.last) return Status::Ok();
  control_inbox_.push_back({sender, std::move(half_read_[sender])});
  half_read_[sender].clear();
  return Status::Ok();
}

Status NodeChannel::Find(int sender, const SlotNote& note, std::vector<Loan::Part>* parts) const {
  std::byte* const slot = layout_.slot(segments_[sender], note.slot);
  const size_t capacity = layout_.capacity_of(note.slot);
  size_t total = 0;
  if ((size_t(note.first_extent) + note.extents) * sizeof(Extent) > capacity) {
    return Damaged(sender, "a slot with " + std::to_string(note.extents) + " extents");
  }
  for (int i = 0; i < note.extents; ++i) {
    Extent extent;  // a copy, so that the checked values cannot change
    std::memcpy(&extent, slot + capacity - (note.first_extent + i + 1) * sizeof(Extent), sizeof(Extent));
    const BufferView tensors = tensors_.empty() ? BufferView() : tensors_[sender];
    const BufferView memory = extent.of_tensor != 0 ? tensors : BufferView(slot, capacity);
    if (extent.bytes == 0 || extent.offset > memory.size || extent.bytes > memory.size - extent.offset) {
      return Damaged(sender, "an extent of " + std::to_string(extent.bytes) + " bytes at " +
                                 std::to_string(extent.offset) + " of " + std::to_string(memory.size));
    }
    parts->push_back({memory.Slice(extent.offset, extent.bytes), extent.of_tensor != 0});
    total += extent.bytes;
  }
  if (total == note.bytes) return Status::Ok();
  return Damaged(sender, "extents of " + std::to_string(total) + " bytes for " + std::to_string(note.bytes));
}

}  // namespace smddp
