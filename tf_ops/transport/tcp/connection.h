// Frames on one connection: each has a head, with a tag and a length, and a body. Never waits.
//
// Threads:   one. Ownership: the bytes of a frame that does not own them belong to the caller until it has been sent.
// Order:     control frames overtake data that wait; frames of a kind stay in order.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "transport/tcp/network.h"
#include "transport/transport.h"

namespace smddp {

struct FrameHead {
  uint32_t tag = 0;     // PackTag's, or one of those below
  uint32_t length = 0;  // bytes of the body
};
constexpr uint32_t kControlTag = 0xffffffff;
constexpr uint32_t kByeTag = 0xfffffffe;  // the last one: the end of the connection that follows is in order
constexpr size_t kMaxDataBytes = size_t{1} << 30;

struct Frame {
  FrameHead head;
  BufferView body;    // the caller's; unless
  std::string owned;  // has it
  Ticket ticket = 0;  // of data; 0: nobody asks when it has been sent
};

class Connection {
 public:
  // `network`, which outlives it: of one that begins to connect to `ends.to`. Null: opened by another rank.
  Connection(Socket socket, const TcpNetwork* network, const Ends& ends)
      : socket_(std::move(socket)), network_(network), ends_(ends) {}
  virtual ~Connection() = default;

  int file() const { return socket_.file(); }
  // Can it only go on when the socket can be written?
  bool awaits_writing() const { return state_ == State::kConnecting || (state_ == State::kOpen && !frames_.empty()); }
  bool sends() const { return !frames_.empty(); }
  // Transport::UnansweredNs.
  int64_t UnansweredNs() const { return state_ == State::kOpen ? socket_.UnansweredNs() : 0; }

  void Add(Frame frame);
  // Writes what the socket takes; appends the tickets of frames that are sent. kPeerLost: the other side has closed the
  // connection, or cannot be reached because nothing listens there.
  Status Write(std::vector<Ticket>* sent);
  // Reads what has come, up to some megabytes; true: there was something. Same errors.
  Result<bool> Read();

  // From now on no memory of callers is read: data that wait are dropped, and of the frame that has begun the rest is
  // copied.
  void DropData();
  // The rest of the body that arrives goes there instead. At least as long as the rest.
  void ReadRestInto(std::byte* memory) { body_.data = memory; }
  size_t rest() const { return body_.size; }
  void EndSending() const { socket_.EndSending(); }

 private:
  enum class State { kConnecting, kAwaitsChallenge, kAwaitsProof, kOpen };

  // A frame begins. Returns the memory for its body, of its length.
  virtual Result<BufferView> Begin(const FrameHead& head) = 0;
  // Its body is complete.
  virtual void End(const FrameHead& head) = 0;
  Status Failed(int error) const;
  // Bytes that have been read and not used.
  size_t staged() const { return stage_end_ - stage_begin_; }
  bool TakeStaged(void* into, size_t size);
  Status Shake();
  Status Use();
  std::vector<iovec> Gather();
  void Sent(size_t bytes, std::vector<Ticket>* sent);

  Socket socket_;
  const TcpNetwork* const network_;  // of one that this side opens
  const Ends ends_;
  State state_ = network_ != nullptr ? State::kConnecting : State::kOpen;
  Claim claim_;

  std::deque<Frame> frames_;
  size_t offset_ = 0;  // bytes of the first frame, its head included, that are sent

  FrameHead head_;  // of the frame that arrives
  bool in_body_ = false;
  BufferView body_;  // what has not arrived of it
  std::array<std::byte, 8192> stage_;
  size_t stage_begin_ = 0, stage_end_ = 0;
};

}  // namespace smddp
