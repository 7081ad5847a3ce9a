#include "inproc/hub.h"

#include <algorithm>
#include <cstring>

#include "core/sync/test_delay.h"

namespace smddp {

void InprocHub::SetDoorbell(int rank, Doorbell* doorbell) {
  std::lock_guard<std::mutex> lock(mutex_);
  boxes_[rank].doorbell = doorbell;
}

void InprocHub::Deliver(int to, Mail mail) {
  InjectTestDelay();
  std::lock_guard<std::mutex> lock(mutex_);
  boxes_[to].mail.push_back(std::move(mail));
  if (boxes_[to].doorbell != nullptr) boxes_[to].doorbell->Ring();
}

std::vector<InprocHub::Mail> InprocHub::Collect(int rank) {
  InjectTestDelay();
  std::vector<Mail> mail;
  std::lock_guard<std::mutex> lock(mutex_);
  mail.swap(boxes_[rank].mail);
  return mail;
}

Result<Ticket> InprocTransport::Send(int peer, Tag tag, BufferView bytes) {
  std::string copy(reinterpret_cast<const char*>(bytes.data), bytes.size);
  hub_.Deliver(peer, {rank_, /*control=*/false, PackTag(tag), depth_ + 1, std::move(copy)});
  bytes_sent_ += static_cast<int64_t>(bytes.size);
  sent_.push_back({peer, static_cast<int64_t>(bytes.size), depth_});
  done_.emplace(next_ticket_, 0);
  return next_ticket_++;
}

Result<Ticket> InprocTransport::Recv(int peer, Tag tag, BufferView bytes) {
  receives_.push_back({next_ticket_, Key(peer, PackTag(tag)), bytes});
  return next_ticket_++;
}

Result<bool> InprocTransport::Test(Ticket ticket) {
  const auto at = done_.find(ticket);
  if (at == done_.end()) return false;
  depth_ = std::max(depth_, at->second);
  done_.erase(at);
  return true;
}

Status InprocTransport::Post(int peer, std::string message) {
  hub_.Deliver(peer, {rank_, /*control=*/true, 0, 0, std::move(message)});
  return Status::Ok();
}

bool InprocTransport::Poll(Message* message) {
  if (control_.empty()) return false;
  *message = std::move(control_.front());
  control_.erase(control_.begin());
  return true;
}

Result<bool> InprocTransport::Progress() {
  bool moved = false;
  for (InprocHub::Mail& mail : hub_.Collect(rank_)) {
    moved |= !mail.control;
    if (mail.control) {
      control_.push_back({mail.from, std::move(mail.bytes)});
    } else {
      arrived_[Key(mail.from, mail.tag)].push_back(std::move(mail));
    }
  }
  for (auto receive = receives_.begin(); receive != receives_.end();) {
    const auto at = arrived_.find(receive->key);
    if (at == arrived_.end()) {
      ++receive;
      continue;
    }
    const InprocHub::Mail mail = std::move(at->second.front());
    const std::string& bytes = mail.bytes;
    at->second.erase(at->second.begin());
    if (at->second.empty()) arrived_.erase(at);
    if (bytes.size() != receive->bytes.size) {
      return Status(Reason::kInternal, "Expected a message of " + std::to_string(receive->bytes.size) +
                                           " bytes, received " + std::to_string(bytes.size()) + ".");
    }
    std::memcpy(receive->bytes.data, bytes.data(), bytes.size());
    done_.emplace(receive->ticket, mail.depth);
    receive = receives_.erase(receive);
    moved = true;
  }
  return moved;
}

}  // namespace smddp
