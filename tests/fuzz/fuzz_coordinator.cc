// Announcements of several ranks under one name, and what the coordinator makes of them; proposals of process sets.
#include <vector>

#include "compute/compute.h"
#include "fuzz/input.h"
#include "runtime/named/coordinator.h"
#include "runtime/session/set_proposal.h"

namespace {

void Announce(fuzz::Input input) {
  static const smddp::Topology topology = *smddp::Topology::Build(0, {"a", "a", "b"});
  smddp::JoinRounds join(topology.size());
  smddp::Coordinator coordinator(topology, smddp::CpuCompute(), join, /*most_numbers=*/2);
  int64_t now_ns = 1;
  while (!input.empty()) {
    const int rank = input.Take<uint8_t>() % topology.size();
    if (input.Take<uint8_t>() % 8 == 0) {
      join.Add(rank);
      for (const smddp::Verdict& verdict : coordinator.RankJoined()) (void)Encode(verdict);
    }
    smddp::Announcement announcement;
    if (!smddp::Decode(input.TakeText(), &announcement)) continue;
    if (!coordinator.Complete(&announcement)) continue;
    announcement.name = announcement.name.substr(0, 1);  // so that they meet
    (void)smddp::CoordinatorOf(announcement, topology);
    const auto verdict = coordinator.Add(rank, announcement, now_ns++);
    smddp::Verdict again;
    if (verdict) (void)smddp::Decode(Encode(*verdict), &again);
    (void)coordinator.Stalled(now_ns, 1e-9);
  }
  (void)coordinator.Missing(now_ns, 1e-9, /*untold=*/false);
  (void)coordinator.Expire(now_ns, 1e-9, [](const std::set<int>& missing) { return std::to_string(missing.size()); });
}

void Propose(fuzz::Input input) {
  std::vector<smddp::SetProposal> by_rank;
  for (int rank = 0; rank < 3; ++rank) {
    auto proposal = smddp::DecodeProposal(input.TakeText(), rank);
    if (!proposal.ok()) return;
    by_rank.push_back(std::move(*proposal));
  }
  (void)smddp::SetsToMake(by_rank, {{0, {0, 1, 2}}, {1, {0, 2}}}).ok();
  (void)smddp::CheckSameKind(by_rank).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  input.Take<uint8_t>() % 4 == 0 ? Propose(input) : Announce(input);
  return 0;
}
