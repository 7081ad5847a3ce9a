// Where ranks of a job over TCP are that are objects of one process, on the loopback interface.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "transport/world.h"

namespace smddp {

// A socket that listens on a free port; `*address` is where. -1: there is none.
inline int ListenOnLoopback(std::string* address) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(place);
  const bool listens = bind(file, reinterpret_cast<sockaddr*>(&place), length) == 0 && listen(file, 64) == 0 &&
                       getsockname(file, reinterpret_cast<sockaddr*>(&place), &length) == 0;
  *address = "127.0.0.1:" + std::to_string(ntohs(place.sin_port));
  return listens ? file : -1;
}

// The sockets are the caller's, who starts a TcpNetwork of each world.
inline std::vector<World> WorldsOf(int size) {
  std::vector<World> worlds(static_cast<size_t>(size));
  std::vector<std::string> addresses(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    worlds[rank].rank = rank;
    worlds[rank].key = {0x0123456789abcdefull, 0xfedcba9876543210ull};
    worlds[rank].listener = ListenOnLoopback(&addresses[rank]);
  }
  for (World& world : worlds) world.addresses = addresses;
  return worlds;
}

}  // namespace smddp
