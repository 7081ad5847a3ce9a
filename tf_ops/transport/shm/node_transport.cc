#include "transport/shm/node_transport.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace smddp {

Ticket NodeTransport::Add(std::list<Transfer>* list, int peer, Tag tag, BufferView bytes) {
  const int position = node_.position_of(peer);
  SMDDP_CHECK_OP(position, >=, 0);
  list->push_back({next_ticket_, position, tag, bytes});
  return next_ticket_++;
}

Status NodeTransport::Post(int peer, std::string message) {
  control_.Post(node_.position_of(peer), std::move(message));
  return Status::Ok();
}

bool NodeTransport::Poll(Message* message) {
  if (!control_.Poll(message)) return false;
  message->from = node_.world_rank(message->from);
  return true;
}

// True when the whole message has been published. Uses each slot at most once per call: if a peer of the node empties
// slots as fast as they are filled, the rest of the engine must still run.
bool NodeTransport::StepSend(Transfer* send, bool* moved) {
  Slot slot;
  for (int piece = 0; piece < NodeLayout::kSlotsPerPool && channel_.Reserve(Pool::kCopy, &slot); ++piece) {
    const size_t bytes = std::min(send->bytes.size - send->moved, slot.memory.size);
    std::memcpy(slot.memory.data, send->bytes.data + send->moved, bytes);
    send->moved += bytes;
    bytes_sent_ += static_cast<int64_t>(bytes);
    const bool last = send->moved == send->bytes.size;
    channel_.Publish(slot, send->tag, bytes, {send->peer}, last);
    channel_.Release(&slot);
    *moved = true;
    if (last) return true;
  }
  return false;
}

Result<bool> NodeTransport::StepReceive(Transfer* receive, bool* moved) {
  Loan loan;
  while (channel_.Take(receive->peer, receive->tag, &loan)) {
    *moved = true;
    const size_t room = receive->bytes.size - receive->moved;
    const size_t bytes = loan.memory.size;
    const bool fits = bytes <= room && (!loan.last || bytes == room);
    if (fits) std::memcpy(receive->bytes.data + receive->moved, loan.memory.data, bytes);
    channel_.Return(loan);
    if (!fits) {
      return Status(Reason::kInternal, "Expected ", receive->bytes.size, " bytes from local rank ", receive->peer,
                    ", received a different number.");
    }
    receive->moved += bytes;
    if (loan.last) return true;
  }
  return false;
}

Result<bool> NodeTransport::Progress() {
  SMDDP_ASSIGN_OR_RETURN(bool moved, channel_.Progress());
  SMDDP_ASSIGN_OR_RETURN(const bool sent, control_.Progress());
  moved |= sent;
  for (auto at = sends_.begin(); at != sends_.end();) {
    const bool complete = StepSend(&*at, &moved);
    if (!complete) break;  // no slot is free: later sends would overtake
    done_.insert(at->ticket);
    at = sends_.erase(at);
  }
  for (auto at = receives_.begin(); at != receives_.end();) {
    SMDDP_ASSIGN_OR_RETURN(const bool complete, StepReceive(&*at, &moved));
    if (complete) done_.insert(at->ticket);
    at = complete ? receives_.erase(at) : std::next(at);
  }
  return moved;
}

bool NodeTransport::Abort() {
  sends_.clear();
  receives_.clear();
  return true;
}

}  // namespace smddp
