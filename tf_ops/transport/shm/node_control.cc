#include "transport/shm/node_control.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace smddp {
namespace {

// The limit of slots held for one peer that does not read its inbox (it may have left).
constexpr int kSlotsPerPeer = 2;

}  // namespace

void NodeControl::Post(int peer, std::string message) {
  outgoing_.push_back({peer, std::move(message)});
  Send();
}

void NodeControl::Forget(int peer) {
  const auto to_peer = [peer](const Outgoing& outgoing) { return outgoing.peer == peer; };
  outgoing_.erase(std::remove_if(outgoing_.begin(), outgoing_.end(), to_peer), outgoing_.end());
}

Result<bool> NodeControl::Progress() {
  for (Loan piece; channel_.TakeControl(&piece);) {
    std::string& message = half_read_[piece.peer];
    if (message.size() + piece.memory.size > kMaxControlBytes) {
      return channel_.Damaged(piece.peer, "a control message without end");
    }
    message.append(reinterpret_cast<const char*>(piece.memory.data), piece.memory.size);
    channel_.Return(piece);
    if (piece.last) inbox_.push_back({piece.peer, std::exchange(message, {})});
  }
  return Send();
}

int NodeControl::InFlight(int peer) const {
  const int first = static_cast<int>(Pool::kControl) * NodeLayout::kSlotsPerPool;
  int count = 0;
  for (int i = 0; i < NodeLayout::kSlotsPerPool; ++i) {
    count += channel_.holders(first + i) != 0 && reader_[i] == peer ? 1 : 0;
  }
  return count;
}

bool NodeControl::Send() {
  if (outgoing_.empty()) return false;
  bool moved = false;
  // Once a peer's message is skipped, its later messages must not overtake it.
  std::vector<bool> blocked(channel_.size());
  for (auto next = outgoing_.begin(); next != outgoing_.end();) {
    blocked[next->peer] = blocked[next->peer] || InFlight(next->peer) >= kSlotsPerPeer;
    if (blocked[next->peer]) {
      ++next;
      continue;
    }
    Slot slot;
    if (!channel_.Reserve(Pool::kControl, &slot)) break;
    const size_t bytes = std::min(next->bytes.size() - next->sent, slot.memory.size);
    std::memcpy(slot.memory.data, next->bytes.data() + next->sent, bytes);
    next->sent += bytes;
    const bool last = next->sent == next->bytes.size();
    reader_[slot.index % NodeLayout::kSlotsPerPool] = next->peer;
    channel_.Publish(slot, Tag{}, bytes, {next->peer}, last);
    channel_.Release(&slot);
    if (last) next = outgoing_.erase(next);
    moved = true;
  }
  return moved;
}

}  // namespace smddp
