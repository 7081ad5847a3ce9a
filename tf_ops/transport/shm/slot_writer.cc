#include "transport/shm/slot_writer.h"

#include <cstring>

#include "core/check.h"

namespace smddp {

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
  SlotNote note;
  note.tag = PackTag(tag);
  note.bytes = static_cast<uint32_t>(bytes_);
  note.slot = static_cast<uint16_t>(slot_.index);
  note.last = 1;
  note.first_extent = static_cast<uint16_t>(published_);
  note.extents = static_cast<uint16_t>(extents_ - published_);
  node_.Publish(note, readers);
  node_.bytes_referred_ += static_cast<int64_t>(referred_ * readers.size());
  published_ = extents_;
  bytes_ = referred_ = 0;
}

}  // namespace smddp
