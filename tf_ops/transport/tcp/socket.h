// A nonblocking TCP socket, closed with its owner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/status.h"

namespace smddp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  // Begins to connect to `address`, "10.0.0.1:4711" or "[fe80::1]:4711", and does not wait: the socket can be written
  // when it is connected, or has failed.
  static Result<Socket> Connect(const std::string& address);
  // The next connection that waits at a listening socket; one without a file when there is none.
  Socket Accept() const;

  int file() const { return file_; }
  bool valid() const { return file_ >= 0; }
  // The error that a connection has met, an errno; 0: none.
  int TakeError() const;
  // Transport::UnansweredNs.
  int64_t UnansweredNs() const;
  // This side sends no more.
  void EndSending() const;

 private:
  int file_ = -1;
};

}  // namespace smddp
