#include "transport/tcp/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace smddp {
namespace {

constexpr size_t kMaxPieces = 32;                     // of one system call
constexpr size_t kMaxBytesPerTurn = size_t{4} << 20;  // then the engine looks at the rest of its work

BufferView BodyOf(Frame& frame) {
  return frame.owned.empty() ? frame.body : BufferView(frame.owned.data(), frame.owned.size());
}

bool IsData(const Frame& frame) { return frame.head.tag < kByeTag; }

bool MayTryAgain(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Status Connection::Failed(int error) const {
  const bool gone = error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNREFUSED;
  if (gone) return Status(Reason::kPeerLost, "its connection has ended");
  const std::string where = network_ != nullptr ? " to " + network_->address(static_cast<int>(ends_.to)) : "";
  return Status(Reason::kTransportFailed, "the connection", where, " failed: ", std::strerror(error));
}

void Connection::Add(Frame frame) {
  auto before = frames_.end();
  if (!IsData(frame)) {
    before = std::find_if(frames_.begin() + (offset_ > 0 ? 1 : 0), frames_.end(), IsData);
  }
  frames_.insert(before, std::move(frame));
}

// --- Sending ---

std::vector<iovec> Connection::Gather() {
  std::vector<iovec> pieces;
  size_t skip = offset_;
  const auto add = [&](void* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size > skipped) pieces.push_back({static_cast<char*>(data) + skipped, size - skipped});
  };
  for (auto frame = frames_.begin(); frame != frames_.end() && pieces.size() + 2 <= kMaxPieces; ++frame) {
    add(&frame->head, sizeof(FrameHead));
    add(BodyOf(*frame).data, BodyOf(*frame).size);
  }
  return pieces;
}

void Connection::Sent(size_t bytes, std::vector<Ticket>* sent) {
  offset_ += bytes;
  while (!frames_.empty() && offset_ >= sizeof(FrameHead) + frames_.front().head.length) {
    offset_ -= sizeof(FrameHead) + frames_.front().head.length;
    if (frames_.front().ticket != 0) sent->push_back(frames_.front().ticket);
    frames_.pop_front();
  }
}

Status Connection::Write(std::vector<Ticket>* sent) {
  if (state_ == State::kConnecting) {
    if (const int error = socket_.TakeError()) return Failed(error);
    state_ = State::kAwaitsChallenge;
  }
  while (state_ == State::kOpen && !frames_.empty()) {
    std::vector<iovec> pieces = Gather();
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t written = sendmsg(socket_.file(), &message, MSG_NOSIGNAL);
    if (written < 0) return MayTryAgain(errno) ? Status::Ok() : Failed(errno);
    Sent(static_cast<size_t>(written), sent);
  }
  return Status::Ok();
}

void Connection::DropData() {
  if (offset_ > 0 && frames_.front().ticket != 0) {  // 0: of this library, or copied before
    Frame& begun = frames_.front();
    begun.owned.assign(reinterpret_cast<const char*>(begun.body.data), begun.body.size);
    begun.ticket = 0;
  }
  const auto rest = frames_.begin() + (offset_ > 0 ? 1 : 0);
  frames_.erase(std::remove_if(rest, frames_.end(), IsData), frames_.end());
}

// --- Receiving ---

bool Connection::TakeStaged(void* into, size_t size) {
  if (staged() < size) return false;
  if (size > 0) std::memcpy(into, stage_.data() + stage_begin_, size);
  stage_begin_ += size;
  return true;
}

// The connecting side of handshake.h.
Status Connection::Shake() {
  Bits128 bits;
  if (state_ == State::kAwaitsChallenge && TakeStaged(&bits, sizeof(bits))) {
    SMDDP_ASSIGN_OR_RETURN(claim_, MakeClaim(network_->key(), bits, ends_));
    // The first bytes of a connection always have room.
    if (send(socket_.file(), &claim_, sizeof(claim_), MSG_NOSIGNAL) != sizeof(claim_)) return Failed(errno);
    state_ = State::kAwaitsProof;
  }
  if (state_ == State::kAwaitsProof && TakeStaged(&bits, sizeof(bits))) {
    if (bits != ProofFor(network_->key(), claim_)) {
      return Status(Reason::kTransportFailed, "the process at ", network_->address(static_cast<int>(ends_.to)),
                    " does not know this job's key");
    }
    state_ = State::kOpen;
  }
  return Status::Ok();
}

Status Connection::Use() {
  if (state_ != State::kOpen) SMDDP_RETURN_IF_ERROR(Shake());
  while (state_ == State::kOpen) {
    if (!in_body_) {
      if (!TakeStaged(&head_, sizeof(head_))) break;
      if (head_.length > (head_.tag == kControlTag ? kMaxControlBytes : kMaxDataBytes)) {
        return OtherVersion("A frame of ", head_.length, " bytes has come, which is too long");
      }
      SMDDP_ASSIGN_OR_RETURN(body_, Begin(head_));
      in_body_ = true;
    }
    const size_t here = std::min(body_.size, staged());
    TakeStaged(body_.data, here);
    body_ = body_.Slice(here, body_.size - here);
    if (body_.size > 0) break;
    in_body_ = false;
    End(head_);
  }
  // What is left is the beginning of a head, or of a part of the handshake.
  std::memmove(stage_.data(), stage_.data() + stage_begin_, staged());
  stage_end_ = staged();
  stage_begin_ = 0;
  return Status::Ok();
}

Result<bool> Connection::Read() {
  size_t total = 0;
  while (total < kMaxBytesPerTurn) {
    const size_t wanted = in_body_ ? body_.size : 0;
    iovec pieces[] = {{body_.data, wanted}, {stage_.data() + stage_end_, stage_.size() - stage_end_}};
    const ssize_t came = readv(socket_.file(), pieces, 2);
    if (came < 0 && MayTryAgain(errno)) break;
    if (came <= 0) return Failed(came == 0 ? 0 : errno);
    const size_t in_body = std::min(static_cast<size_t>(came), wanted);
    body_ = body_.Slice(in_body, body_.size - in_body);
    stage_end_ += static_cast<size_t>(came) - in_body;
    total += static_cast<size_t>(came);
    SMDDP_RETURN_IF_ERROR(Use());
    if (static_cast<size_t>(came) < pieces[0].iov_len + pieces[1].iov_len) break;
  }
  return total > 0;
}

}  // namespace smddp
