// A connection over TCP to a rank: from a process that does not know the job's key, or, after the handshake, from a
// rank that sends anything.
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

#include "core/clock.h"
#include "core/process/log.h"
#include "fuzz/input.h"
#include "inproc/worlds.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/network.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using smddp::BufferView;

constexpr int kReceives = 4;
constexpr timeval kPatience = {5, 0};

// Rank 0 of two, for all inputs: each has a context of its own.
struct Job {
  Job() : worlds(smddp::WorldsOf(2)) {
    auto started = smddp::TcpNetwork::Start(worlds[0]);
    if (!started.ok()) std::abort();
    network = std::move(*started);
  }
  std::vector<smddp::World> worlds;
  std::shared_ptr<smddp::TcpNetwork> network;
  uint32_t context = 0;
};

int Connect(const std::string& address) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  if (connect(file, reinterpret_cast<sockaddr*>(&place), sizeof(place)) != 0) std::abort();
  return file;
}

// Rank 1's side of the handshake. Rank 0 must answer it.
void Prove(int file, const Job& job, uint32_t context) {
  smddp::Bits128 challenge, proof;
  if (recv(file, &challenge, sizeof(challenge), MSG_WAITALL) != sizeof(challenge)) std::abort();
  smddp::Ends ends;
  ends.context = context;
  ends.from = 1;
  const auto claim = smddp::MakeClaim(job.worlds[0].key, challenge, ends);
  if (!claim.ok() || send(file, &*claim, sizeof(*claim), MSG_NOSIGNAL) != sizeof(*claim)) std::abort();
  if (recv(file, &proof, sizeof(proof), MSG_WAITALL) != sizeof(proof)) std::abort();
  if (proof != smddp::ProofFor(job.worlds[0].key, *claim)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  smddp::SetLog(smddp::LogLevel::kOff, 0);
  static Job& job = *new Job();
  const uint32_t context = ++job.context;
  fuzz::Input input(data, size);
  const uint8_t first = input.Take<uint8_t>();
  const bool proves = first % 4 != 0;
  smddp::TcpTransport transport(job.network, context, {0, 1});
  std::vector<std::string> into;
  for (int i = 0; i < kReceives; ++i) into.emplace_back(static_cast<size_t>(first), '\0');
  for (std::string& bytes : into) {
    (void)transport.Recv(1, {first % 3u, 0, 0}, BufferView(bytes.data(), bytes.size()));
  }
  const int file = Connect(job.worlds[0].addresses[0]);
  if (proves) Prove(file, job, context);
  const std::string_view rest = input.Rest();
  (void)!send(file, rest.data(), rest.size(), MSG_NOSIGNAL);
  shutdown(file, SHUT_WR);
  // Whoever has not proved that it knows the key is never seen; a rank's connection ends with a loss or an error.
  const smddp::Deadline deadline = smddp::Deadline::After(proves ? 30 : 0.001);
  smddp::Status status;
  smddp::Message message;
  while (status.ok() && transport.lost().empty() && !transport.has_left(1) && !deadline.passed()) {
    status = transport.Progress().status();
    while (transport.Poll(&message)) continue;
  }
  if (proves == (status.ok() && transport.lost().empty() && !transport.has_left(1))) std::abort();
  close(file);
  return 0;
}
