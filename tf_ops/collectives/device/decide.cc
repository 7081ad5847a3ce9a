// Each method between GPUs has its requirements. The user is told the first one that is not met, by rank.
#include <algorithm>

#include "collectives/device/rank_device_info.h"

namespace smddp {
namespace {

constexpr char kAuto[] = "auto";

class Decider {
 public:
  Decider(const Topology& topology, const std::string& wanted, const std::vector<RankDeviceInfo>& infos)
      : topology_(topology), wanted_(wanted), infos_(infos) {}

  Result<DeviceDecision> Decide() const {
    DeviceDecision decision;
    const bool on_gpus = std::any_of(infos_.begin(), infos_.end(), [](const auto& info) { return info.has_device; });
    for (const DeviceMethod method : {DeviceMethod::kAll, DeviceMethod::kNode}) {
      if (!on_gpus || (!automatic() && wanted_ != NameOf(method))) continue;
      if (automatic() && method == DeviceMethod::kNode && topology_.node_count() == 1) continue;  // as the one before
      const std::string obstacle = ObstacleTo(method);
      if (obstacle.empty()) {
        decision.methods.push_back(method);
      } else if (!automatic()) {
        return Status(Reason::kBadState, "SMDDP_GPU_STAGE=", wanted_, ", but ", obstacle,
                      ". SMDDP_GPU_STAGE=auto uses the best available method.");
      } else if (decision.why_not_nccl.empty()) {
        decision.why_not_nccl = obstacle;
      }
    }
    if (automatic() || decision.methods.empty()) decision.methods.push_back(DeviceMethod::kHost);
    return decision;
  }

 private:
  bool automatic() const { return wanted_ == kAuto; }
  // "rank 3 (host h0)"
  std::string Rank(int rank) const {
    return "rank " + std::to_string(topology_.global_rank(rank)) + " (host " + topology_.host_name(rank) + ")";
  }

  // "" when there is none.
  std::string ObstacleTo(DeviceMethod method) const {
    for (int rank = 0; rank < topology_.size(); ++rank) {
      if (!infos_[rank].has_device) return Rank(rank) + " has no gradients on a GPU";
    }
    std::string obstacle = method == DeviceMethod::kAll ? ObstacleToVersions(topology_.all()) : "";
    for (const Group& node : topology_.nodes()) {
      if (obstacle.empty() && node.size() > 1) obstacle = ObstacleToVersions(node);
      if (obstacle.empty()) obstacle = ObstacleToDevices(node);
    }
    return obstacle;
  }

  std::string ObstacleToVersions(const Group& members) const {
    const int first = members.world_rank(0);
    for (const int rank : members.world_ranks()) {
      if (infos_[rank].group_version == 0) return Rank(rank) + " cannot use NCCL: " + infos_[rank].why_no_group;
    }
    for (const int rank : members.world_ranks()) {
      if (infos_[rank].group_version == infos_[first].group_version) continue;
      return Rank(first) + " has NCCL " + std::to_string(infos_[first].group_version) + " and " + Rank(rank) +
             " has NCCL " + std::to_string(infos_[rank].group_version);
    }
    return "";
  }

  // Slices of one GPU (MIG) have different uuids, and NCCL counts them as one.
  std::string ObstacleToDevices(const Group& node) const {
    for (const int rank : node.world_ranks()) {
      const DeviceInfo& device = infos_[rank].device;
      for (const int other : node.world_ranks()) {
        const DeviceInfo& its = infos_[other].device;
        if (other <= rank || MayShare(infos_[rank])) continue;
        if (device.uuid != its.uuid && device.bus_id != its.bus_id) continue;
        return Rank(rank) + " and " + Rank(other) + " use the same GPU, " + device.name + " " + device.bus_id +
               ": NCCL needs one per rank, and slices of one (MIG) do not count. If there are others, pin one per rank "
               "before TensorFlow uses it: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')";
      }
    }
    return "";
  }

  // Only where NCCL was asked for: `auto` never lets ranks take a GPU by turns.
  bool MayShare(const RankDeviceInfo& info) const { return info.shares_device && !automatic(); }

  const Topology& topology_;
  const std::string& wanted_;
  const std::vector<RankDeviceInfo>& infos_;
};

}  // namespace

Result<DeviceDecision> Decide(const Topology& topology, const std::string& wanted,
                              const std::vector<RankDeviceInfo>& infos) {
  return Decider(topology, wanted, infos).Decide();
}

}  // namespace smddp
