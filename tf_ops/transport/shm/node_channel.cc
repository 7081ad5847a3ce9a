#include "transport/shm/node_channel.h"

#include <cstring>

#include "core/check.h"
#include "core/sync/test_delay.h"

namespace smddp {
namespace {

uint64_t Key(int peer, uint32_t packed_tag) { return (uint64_t(peer) << 32) | packed_tag; }

// Copies the data of a slot into private memory and returns the slot.
void MoveOut(NodeChannel* channel, Loan* loan) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[loan->memory.size]);
  if (loan->parts.empty()) {
    std::memcpy(copy.get(), loan->memory.data, loan->memory.size);
    loan->memory.data = copy.get();
  }
  std::byte* at = copy.get();
  for (Loan::Part& part : loan->parts) {
    std::memcpy(at, part.memory.data, part.memory.size);
    part.memory.data = at;
    at += part.memory.size;
  }
  channel->Return(*loan);
  loan->copy = copy;
}

}  // namespace

NodeChannel::NodeChannel(int position, const NodeLayout& layout, std::vector<std::byte*> segments,
                         std::vector<BufferView> tensors)
    : position_(position),
      layout_(layout),
      segments_(std::move(segments)),
      tensors_(std::move(tensors)),
      written_(layout.members),
      read_(layout.members) {
  SMDDP_CHECK_OP(static_cast<int>(segments_.size()), ==, layout.members);
  for (int member = 0; member < size(); ++member) {
    if (member != position_) others_.push_back(member);
  }
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
  Publish({PackTag(tag), static_cast<uint32_t>(bytes), static_cast<uint16_t>(slot.index), static_cast<uint8_t>(last)},
          readers);
}

void NodeChannel::Publish(const SlotNote& note, const std::vector<int>& readers) {
  layout_.readers(segments_[position_], note.slot)
      ->fetch_add(static_cast<uint32_t>(readers.size()), std::memory_order_relaxed);
  for (int reader : readers) {
    NoteRing& ring = *layout_.inbox(segments_[reader], position_);
    uint32_t& at = written_[reader];
    if (at - ring.read.load(std::memory_order_acquire) >= NoteRing::kPlaces) {
      if (damaged_.ok()) damaged_ = Damaged(reader, "it has read notes that were never written");
      continue;
    }
    ring.notes[at % NoteRing::kPlaces] = note;
    InjectTestDelay();
    ring.written.store(++at, std::memory_order_release);
    layout_.doorbell(segments_[reader])->Ring();
  }
  bytes_published_ += static_cast<int64_t>(note.bytes * readers.size());
}

void NodeChannel::Release(Slot* slot) {
  InjectTestDelay();
  layout_.readers(segments_[position_], slot->index)->fetch_sub(1, std::memory_order_release);
  *slot = Slot();
}

bool NodeChannel::Shares(const void* data, size_t bytes) const {
  if (tensors_.empty()) return false;
  const BufferView& mine = tensors_[position_];
  const size_t offset = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(mine.data);
  return offset < mine.size && bytes <= mine.size - offset;
}

bool NodeChannel::Has(int peer, const Tag& tag) const { return arrived_.count(Key(peer, PackTag(tag))) != 0; }

bool NodeChannel::Take(int peer, const Tag& tag, Loan* loan, bool in_parts) {
  if (!TakeOldest(&arrived_, Key(peer, PackTag(tag)), loan)) return false;
  if (!in_parts && !loan->parts.empty()) {
    if (loan->copy == nullptr) MoveOut(this, loan);
    loan->memory.data = loan->copy.get();
    loan->parts.clear();
  }
  return true;
}

bool NodeChannel::Evacuate() {
  bool some = false;
  for (auto& [key, arrived] : arrived_) {
    for (Loan& loan : arrived) {
      if (loan.copy != nullptr) continue;
      MoveOut(this, &loan);
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

Result<bool> NodeChannel::Progress() {
  bool moved = false;
  for (int sender = 0; sender < size(); ++sender) {
    NoteRing& ring = *layout_.inbox(segments_[position_], sender);
    uint32_t& at = read_[sender];
    InjectTestDelay();
    const uint32_t written = ring.written.load(std::memory_order_acquire);
    if (at == written) continue;
    if (written - at > NoteRing::kPlaces) return Damaged(sender, "more notes than there are places");
    for (; at != written; ++at) {
      const SlotNote note = ring.notes[at % NoteRing::kPlaces];  // a copy, so that the checked values cannot change
      SMDDP_RETURN_IF_ERROR(Accept(sender, note));
    }
    ring.read.store(at, std::memory_order_release);
    moved = true;
  }
  SMDDP_RETURN_IF_ERROR(damaged_);
  return moved;
}

Status NodeChannel::Damaged(int member, const std::string& what) const {
  return OtherVersion("The shared memory of local rank ", member, " and local rank ", position_, " is damaged: ", what);
}

Status NodeChannel::Accept(int sender, const SlotNote& note) {
  if (note.slot >= NodeLayout::kSlots || note.bytes > layout_.capacity_of(note.slot)) {
    return Damaged(sender, "a note of " + std::to_string(note.bytes) + " bytes in slot " + std::to_string(note.slot));
  }
  std::byte* const data = layout_.slot(segments_[sender], note.slot);
  Loan loan = {sender, note.slot, {data, note.bytes}, note.last != 0, /*copy=*/nullptr, /*parts=*/{}};
  if (layout_.pool_of(note.slot) == Pool::kControl) {
    control_.push_back(std::move(loan));
    return Status::Ok();
  }
  if (note.extents > 0) {
    SMDDP_RETURN_IF_ERROR(Find(sender, note, &loan.parts));
    loan.memory.data = nullptr;
  }
  arrived_[Key(sender, note.tag)].push_back(std::move(loan));
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
      return Damaged(sender, Concat("an extent of ", extent.bytes, " bytes at ", extent.offset, " of ", memory.size));
    }
    parts->push_back({memory.Slice(extent.offset, extent.bytes), extent.of_tensor != 0});
    total += extent.bytes;
  }
  if (total == note.bytes) return Status::Ok();
  return Damaged(sender, "extents of " + std::to_string(total) + " bytes for " + std::to_string(note.bytes));
}

// --- A slot that refers to tensors ---

std::byte* SlotWriter::Append(size_t bytes) {
  std::byte* const at = slot_.memory.data + copied_;
  Add(copied_, bytes, false);
  copied_ += bytes;
  return at;
}

void SlotWriter::Refer(const void* data, size_t bytes) {
  const std::byte* const base = node_.tensors_[node_.position_].data;
  Add(reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(base), bytes, true);
}

void SlotWriter::Add(uint64_t offset, size_t bytes, bool of_tensor) {
  const bool continues = extents_ > published_ && last_.of_tensor == of_tensor && last_.offset + last_.bytes == offset;
  if (!continues) last_ = {offset, 0, of_tensor};
  extents_ += continues ? 0 : 1;
  last_.bytes += static_cast<uint32_t>(bytes);
  bytes_ += bytes;
  referred_ += of_tensor ? bytes : 0;
  const size_t table = extents_ * sizeof(Extent);
  SMDDP_CHECK_OP((of_tensor ? copied_ : copied_ + bytes) + table, <=, slot_.memory.size);
  std::memcpy(slot_.memory.data + slot_.memory.size - table, &last_, sizeof(Extent));
}

void SlotWriter::Publish(const Tag& tag, const std::vector<int>& readers) {
  node_.Publish({PackTag(tag), static_cast<uint32_t>(bytes_), static_cast<uint16_t>(slot_.index), /*last=*/1,
                 static_cast<uint16_t>(published_), static_cast<uint16_t>(extents_ - published_)},
                readers);
  node_.bytes_referred_ += static_cast<int64_t>(referred_ * readers.size());
  published_ = extents_;
  bytes_ = referred_ = 0;
}

}  // namespace smddp
