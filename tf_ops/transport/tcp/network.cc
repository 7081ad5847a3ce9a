#include "transport/tcp/network.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/process/log.h"

namespace smddp {
namespace {

constexpr double kClaimSeconds = 10.0;
constexpr size_t kMorePending = 64;  // than there are ranks
constexpr int kLookMilliseconds = 1000;

}  // namespace

Result<std::shared_ptr<TcpNetwork>> TcpNetwork::Start(const World& world) {
  std::shared_ptr<TcpNetwork> network(new TcpNetwork(world));
  if (world.rank < 0 || world.rank >= network->size()) {
    return Status(Reason::kBadArgument, "Rank ", world.rank, " is none of ", network->size(), " ranks.");
  }
  network->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!network->wake_.valid() || fcntl(network->listener_.file(), F_SETFL, O_NONBLOCK) != 0) {
    return Status(Reason::kNoResources,
                  "This rank cannot listen for the others: no file descriptor is free, or its "
                  "listening socket is closed.");
  }
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  network->thread_ = std::thread([raw = network.get()] { raw->Serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return network;
}

TcpNetwork::~TcpNetwork() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.file(), &one, sizeof(one));
  thread_.join();
}

std::vector<TcpNetwork::Accepted> TcpNetwork::Take(uint32_t context) {
  if (waiting_.load(std::memory_order_acquire) == 0) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Accepted> taken;
  std::swap(taken, accepted_[context]);
  waiting_ -= taken.size();
  return taken;
}

void TcpNetwork::Serve() {
  while (true) {
    std::vector<pollfd> files = {{wake_.file(), POLLIN, 0}, {listener_.file(), POLLIN, 0}};
    for (const Pending& pending : pending_) files.push_back({pending.socket.file(), POLLIN, 0});
    if (poll(files.data(), files.size(), kLookMilliseconds) < 0 && errno != EINTR) {
      Log(LogLevel::kError, "This rank accepts no more connections: poll failed.");
      return;
    }
    if (files[0].revents != 0) return;
    auto file = files.begin() + 2;
    for (auto pending = pending_.begin(); pending != pending_.end(); ++file) {
      const bool stays = file->revents != 0 ? Continue(&*pending) : !pending->until.passed();
      pending = stays ? std::next(pending) : pending_.erase(pending);
    }
    if (files[1].revents != 0) Admit();
  }
}

void TcpNetwork::Admit() {
  for (Socket socket = listener_.Accept(); socket.valid(); socket = listener_.Accept()) {
    const Result<Bits128> challenge = Unpredictable();
    if (!challenge.ok()) continue;
    // The first bytes of a connection always have room.
    if (send(socket.file(), &*challenge, sizeof(Bits128), MSG_NOSIGNAL) != sizeof(Bits128)) continue;
    pending_.push_back({std::move(socket), *challenge, Deadline::After(kClaimSeconds), {}});
    if (pending_.size() > world_.addresses.size() + kMorePending) pending_.pop_front();
  }
}

bool TcpNetwork::Continue(Pending* pending) {
  char* const at = reinterpret_cast<char*>(&pending->claim) + pending->came;
  const ssize_t came = recv(pending->socket.file(), at, sizeof(Claim) - pending->came, 0);
  if (came < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (came <= 0) return false;
  pending->came += static_cast<size_t>(came);
  if (pending->came < sizeof(Claim)) return true;
  const Claim& claim = pending->claim;
  if (!IsSigned(world_.key, pending->challenge, claim)) {
    Log(LogLevel::kWarning, "A connection was refused: its other side does not know this job's key.");
    return false;
  }
  const bool is_meant = claim.ends.version == Ends().version && claim.ends.to == static_cast<uint32_t>(rank()) &&
                        claim.ends.from < static_cast<uint32_t>(size());
  const Bits128 proof = ProofFor(world_.key, claim);
  if (!is_meant || send(pending->socket.file(), &proof, sizeof(proof), MSG_NOSIGNAL) != sizeof(proof)) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  accepted_[claim.ends.context].push_back({static_cast<int>(claim.ends.from), std::move(pending->socket)});
  waiting_.fetch_add(1, std::memory_order_release);
  return false;
}

}  // namespace smddp
