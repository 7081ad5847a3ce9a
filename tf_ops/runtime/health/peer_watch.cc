#include "runtime/health/peer_watch.h"

namespace smddp {

std::vector<int> PeerWatch::BeatsDue(int64_t now_ns) {
  heartbeat_.Tick(now_ns);
  parts_.node().Beat(now_ns);
  return heartbeat_.Due(now_ns);
}

Status PeerWatch::FindLost(int64_t now_ns, const std::function<std::string()>& under_way) {
  const std::optional<std::string> lost = heartbeat_.FindLost(
      now_ns, [this](int member) { return LifeSigns{parts_.node().BeatOf(member), !parts_.Lives(member)}; });
  return lost ? Status(Reason::kPeerLost, *lost + under_way()) : Status::Ok();
}

Status PeerWatch::Explained(const Status& error, const std::string& under_way) const {
  const std::vector<int> lost = parts_.transport().lost();
  if (lost.empty() || error.reason() != Reason::kPeerLost) return error;
  return Status(Reason::kPeerLost, heartbeat_.Died(lost) + under_way);
}

}  // namespace smddp
