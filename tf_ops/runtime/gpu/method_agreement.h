// How the ranks come to one method for the gradients on their GPUs: they start the best of those that may work, and
// where it does not start on one rank, all go on to the next.
//
// In rounds: every rank says how its start goes, rank 0 sends what all have said to all (as for
// RequestKind::kDevices), and all conclude the same from it. The first round brings the ids of NCCL's groups, the next
// ones what became of joining; they end when all have joined, or one cannot. A rank whose start has not ended answers
// after a pause, so that the others hear of an error although NCCL lets them wait.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/device/device_context.h"
#include "core/clock.h"
#include "core/wire.h"
#include "runtime/named/coordination.h"

namespace smddp {

// What a rank says in a round.
struct MethodRound {
  int32_t method = -1;  // a DeviceMethod; what is said of another than the current one does not count
  std::string id;       // of the first member of a group: what NCCL's members need (DeviceGroupLibrary::MakeId)
  bool started = false;
  std::string why_not;  // it cannot start

  SMDDP_FIELDS(method, id, started, why_not);
};

// Threads: the engine's.
class MethodAgreement {
 public:
  // The name of its rounds.
  static constexpr char kName[] = "the method of GPUs";

  // All outlive it. `seconds`: for each start.
  MethodAgreement(const Topology& topology, Coordination& coordination, double seconds)
      : topology_(topology), coordination_(coordination), seconds_(seconds) {}

  // Call it once, with the same methods on all ranks; not empty. `context` outlives the rounds. `groups` may be null on
  // a rank that is alone in its groups.
  void Begin(DeviceContext& context, DeviceGroupLibrary* groups, std::vector<DeviceMethod> methods);
  bool begun() const { return context_ != nullptr; }
  // The ranks have agreed: `context` uses the method.
  bool settled() const { return settled_; }
  // The answer to a round. An error, the same on all ranks: the last method does not start.
  Status OnRound(const std::vector<std::string>& texts);
  // Call it often while it has begun and is not settled.
  void Step();

 private:
  DeviceMethod method() const { return methods_.front(); }
  // NCCL's group of this rank; of one rank where it needs none.
  const Group& members() const { return method() == DeviceMethod::kAll ? topology_.all() : topology_.node(); }
  void Start();
  void Announce();
  void Fails(const Status& why) { mine_.why_not = why.message().substr(0, kMostWords); }
  Status Next(const std::string& why);

  static constexpr size_t kMostWords = 1000;

  const Topology& topology_;
  Coordination& coordination_;
  const double seconds_;
  DeviceContext* context_ = nullptr;
  DeviceGroupLibrary* groups_ = nullptr;
  std::vector<DeviceMethod> methods_;  // that are left, the current one first
  MethodRound mine_;
  bool waits_for_answer_ = false, settled_ = false;
  int64_t begun_ns_ = 0, answered_ns_ = 0;
};

// To all ranks, what this one says of its GPU.
void AnnounceDevice(Coordination& coordination, std::string name, std::string what);

// Said by rank 0: a method that users may expect is not the one that is taken, or tried next.
void TellWhyNot(const Topology& topology, DeviceMethod taken, DeviceMethod expected, const std::string& why);

// What every rank has said of its GPU. Those that have joined (hvd.join) say nothing.
template <class Info>
Result<std::vector<Info>> ReadAll(const Topology& topology, const std::vector<std::string>& texts) {
  std::vector<Info> all(topology.size());
  if (texts.size() != all.size()) return OtherVersion("Rank 0 sent unreadable descriptions of GPUs");
  for (int rank = 0; rank < topology.size(); ++rank) {
    if (texts[rank].empty() || Decode(texts[rank], &all[rank])) continue;
    return Refused(topology, rank, "sent an unreadable description of its GPU");
  }
  return all;
}

}  // namespace smddp
