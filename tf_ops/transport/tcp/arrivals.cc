#include "transport/tcp/arrivals.h"

#include <cstring>

namespace smddp {

Status Arrivals::Check(const Asked& asked, size_t size) const {
  if (asked.into.size == size) return Status::Ok();
  return Status(Reason::kInternal, "Expected a message of ", asked.into.size, " bytes from rank ", asked.peer,
                ", received ", size, ".");
}

Status Arrivals::Ask(Ticket ticket, int peer, uint32_t tag, BufferView into) {
  Asked& asked = asked_[ticket];
  asked = {peer, into, false};
  Shared arrival;
  if (!TakeOldest(&early_, {peer, tag}, &arrival)) {
    open_[{peer, tag}].push_back(ticket);
    return Status::Ok();
  }
  SMDDP_RETURN_IF_ERROR(Check(asked, arrival->size));
  arrival->ticket = ticket;
  if (arrival->complete) End(arrival.get());
  return Status::Ok();
}

Result<Arrivals::Shared> Arrivals::Begin(int peer, uint32_t tag, size_t size, BufferView* into) {
  auto arrival = std::make_shared<Arrival>();
  if (!TakeOldest(&open_, {peer, tag}, &arrival->ticket)) {
    arrival->size = size;
    arrival->kept.reset(new std::byte[size]);
    *into = BufferView(arrival->kept.get(), size);
    if (!cleared_) early_[{peer, tag}].push_back(arrival);
    return arrival;
  }
  const Asked& asked = asked_[arrival->ticket];
  SMDDP_RETURN_IF_ERROR(Check(asked, size));
  *into = asked.into;
  return arrival;
}

void Arrivals::End(Arrival* arrival) {
  arrival->complete = true;
  const auto at = asked_.find(arrival->ticket);
  if (at == asked_.end()) return;
  if (arrival->kept != nullptr && arrival->size > 0) {
    std::memcpy(at->second.into.data, arrival->kept.get(), arrival->size);
  }
  at->second.complete = true;
}

bool Arrivals::Take(Ticket ticket) {
  const auto at = asked_.find(ticket);
  if (at == asked_.end() || !at->second.complete) return false;
  asked_.erase(at);
  return true;
}

void Arrivals::Clear() {
  asked_.clear();
  open_.clear();
  early_.clear();
  cleared_ = true;
}

}  // namespace smddp
