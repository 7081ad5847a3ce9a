#include "transport/tcp/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace smddp {
namespace {

// Small messages leave at once.
void DoNotDelay(int file) {
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Socket::~Socket() {
  if (file_ >= 0) close(file_);
}

Result<Socket> Socket::Connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool bracketed = !address.empty() && address.front() == '[' && colon != std::string::npos && colon > 1;
  const std::string host = bracketed ? address.substr(1, colon - 2) : address.substr(0, colon);
  addrinfo hints = {}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  const bool found =
      colon != std::string::npos && getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &list) == 0;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  if (!found) return Status(Reason::kBadArgument, "'", address, "' is no address. Expected: IP:PORT.");
  Socket made(socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.valid()) DoNotDelay(made.file());
  if (made.valid() && (connect(made.file(), list->ai_addr, list->ai_addrlen) == 0 || errno == EINPROGRESS)) return made;
  return Status(Reason::kTransportFailed, "No connection to ", address, " is possible: ", std::strerror(errno), ".");
}

Socket Socket::Accept() const {
  Socket accepted(accept4(file_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.valid()) DoNotDelay(accepted.file());
  return accepted;
}

int Socket::TakeError() const {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(file_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

// One retransmission, or two probes of a closed window, may be lost, or get no answer because the other kernel answers
// probes seldom. After the last one there is time for an answer: as long as until the next.
int64_t Socket::UnansweredNs() const {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(file_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  const bool was_sent_after = info.tcpi_last_data_sent < info.tcpi_last_ack_recv;  // a retransmission counts as sent
  const bool repeated = info.tcpi_probes > 2 || (info.tcpi_retransmits > 1 && was_sent_after);
  const int64_t silent_ms = info.tcpi_last_ack_recv;
  return repeated && silent_ms * 1000 >= info.tcpi_rto ? silent_ms * 1000000 : 0;
}

void Socket::EndSending() const { shutdown(file_, SHUT_WR); }

}  // namespace smddp
