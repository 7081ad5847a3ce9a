#include "runtime/bootstrap/link_probe.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/wire.h"

namespace smddp {
namespace {

constexpr int kLatencyRounds = 5;
constexpr int kBandwidthRounds = 3;
constexpr int kBurst = 16;
constexpr int64_t kFirstBytes = 16 << 10;  // gives the order of magnitude of the bandwidth
constexpr double kAimSeconds = 0.01;       // the target duration of the second message
constexpr int64_t kMinBytes = 64 << 10, kMaxBytes = 4 << 20;
constexpr double kTooSlowSeconds = 0.05;  // a link on which the first message takes this long is not measured further
constexpr double kFloorSeconds = 1e-7;    // the resolution of clocks

double SecondsSince(int64_t start_ns) {
  return std::max(kFloorSeconds, static_cast<double>(NowNs() - start_ns) * 1e-9);
}

// Sends to the right and receives from the left.
class Neighbours {
 public:
  Neighbours(const Topology& topology, Transport& far, const Deadline& deadline)
      : far_(far), deadline_(deadline), buffer_(2 * kMaxBytes) {
    const Group& rail = topology.rail();
    const int me = rail.position_of(topology.rank());
    right_ = rail.world_rank((me + 1) % rail.size());
    left_ = rail.world_rank((me + rail.size() - 1) % rail.size());
  }

  // Seconds until `messages` of `bytes` each have been sent and received.
  Result<double> Pass(int64_t bytes, int messages) {
    const int64_t start_ns = NowNs();
    const Tag tag = {kMaxOperation, 0, 0};  // a number that is not assigned to any operation
    std::vector<Ticket> tickets;
    for (int i = 0; i < messages; ++i) {
      SMDDP_ASSIGN_OR_RETURN(Ticket in, far_.Recv(left_, tag, {buffer_.data() + kMaxBytes + i * bytes, Size(bytes)}));
      SMDDP_ASSIGN_OR_RETURN(Ticket out, far_.Send(right_, tag, {buffer_.data(), Size(bytes)}));
      tickets.insert(tickets.end(), {in, out});
    }
    SMDDP_RETURN_IF_ERROR(Await(std::move(tickets), start_ns));
    return SecondsSince(start_ns);
  }

  // After an error: memory that MPI may still write to is kept until the process ends.
  void GiveUp() {
    if (!far_.Abort()) new std::vector<std::byte>(std::move(buffer_));
  }

 private:
  static size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

  Status Await(std::vector<Ticket> tickets, int64_t start_ns) {
    while (!tickets.empty()) {
      SMDDP_RETURN_IF_ERROR(far_.Progress().status());
      SMDDP_ASSIGN_OR_RETURN(const bool done, far_.Test(tickets.back()));
      if (done) {
        tickets.pop_back();
        continue;
      }
      if (deadline_.passed()) {
        return Status(Reason::kTimedOut, "No message arrived from rank ", left_,
                      " in time (SMDDP_START_TIMEOUT), or none could be sent to rank ", right_, ".");
      }
      if (SecondsSince(start_ns) < kAimSeconds) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
    return Status::Ok();
  }

  Transport& far_;
  const Deadline deadline_;
  std::vector<std::byte> buffer_;  // what is sent, what is received
  int right_ = 0, left_ = 0;
};

Result<LinkSpeed> FirstLook(Neighbours* neighbours) {
  LinkSpeed speed;
  SMDDP_RETURN_IF_ERROR(neighbours->Pass(8, 1).status());  // connects
  speed.latency_s = 1e9;
  for (int round = 0; round < kLatencyRounds; ++round) {
    SMDDP_ASSIGN_OR_RETURN(const double seconds, neighbours->Pass(8, 1));
    speed.latency_s = std::min(speed.latency_s, seconds);
  }
  SMDDP_ASSIGN_OR_RETURN(const double burst, neighbours->Pass(8, kBurst));
  speed.message_s = std::max(kFloorSeconds, (burst - speed.latency_s) / (kBurst - 1));
  SMDDP_ASSIGN_OR_RETURN(const double first, neighbours->Pass(kFirstBytes, 1));
  speed.bytes_per_s = kFirstBytes / first;
  return speed;
}

Result<double> Bandwidth(Neighbours* neighbours, double first_guess) {
  if (kFirstBytes / first_guess > kTooSlowSeconds) return first_guess;
  const int64_t bytes = std::clamp(static_cast<int64_t>(first_guess * kAimSeconds), kMinBytes, kMaxBytes);
  double best = 0;
  for (int round = 0; round < kBandwidthRounds; ++round) {
    SMDDP_ASSIGN_OR_RETURN(const double seconds, neighbours->Pass(bytes, 1));
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

// The values come from other ranks; times and rates are used as divisors.
bool IsPossible(const LinkSpeed& speed) {
  for (const double value : {speed.latency_s, speed.message_s, speed.bytes_per_s}) {
    if (!(value > 0 && value < 1e18)) return false;  // false for NaN too
  }
  return true;
}

// The worst of all ranks that measured.
Result<LinkSpeed> Worst(bool measured, const LinkSpeed& mine, const Exchange& exchange) {
  SMDDP_ASSIGN_OR_RETURN(const auto texts, exchange(measured ? Encode(mine) : ""));
  LinkSpeed worst = {0, 0, 1e18};
  for (const std::string& text : texts) {
    LinkSpeed other;
    if (text.empty()) continue;
    if (!Decode(text, &other) || !IsPossible(other))
      return OtherVersion("A rank sent an impossible speed of the link between nodes");
    worst.latency_s = std::max(worst.latency_s, other.latency_s);
    worst.message_s = std::max(worst.message_s, other.message_s);
    worst.bytes_per_s = std::min(worst.bytes_per_s, other.bytes_per_s);
  }
  return worst;
}

}  // namespace

Result<LinkSpeed> MeasureLink(const Topology& topology, Transport& far, const Exchange& exchange,
                              const Deadline& deadline) {
  const bool takes_part = topology.is_reducer();
  std::unique_ptr<Neighbours> neighbours;
  Result<LinkSpeed> look = LinkSpeed();
  if (takes_part) {
    neighbours = std::make_unique<Neighbours>(topology, far, deadline);
    look = FirstLook(neighbours.get());
    if (!look.ok()) neighbours->GiveUp();
  }
  SMDDP_RETURN_IF_ERROR(AllOk(look.status(), exchange));
  SMDDP_ASSIGN_OR_RETURN(LinkSpeed agreed, Worst(takes_part, *look, exchange));
  Result<double> bandwidth = agreed.bytes_per_s;
  if (takes_part) {
    bandwidth = Bandwidth(neighbours.get(), agreed.bytes_per_s);
    if (!bandwidth.ok()) neighbours->GiveUp();
  }
  SMDDP_RETURN_IF_ERROR(AllOk(bandwidth.status(), exchange));
  agreed.bytes_per_s = *bandwidth;
  return Worst(takes_part, agreed, exchange);
}

}  // namespace smddp
