// Each method between GPUs has its requirements. The user is told the first one that is not met, by rank.
#include <algorithm>
#include <map>

#include "collectives/device/rank_device_info.h"

namespace smddp {
namespace {

constexpr char kAuto[] = "auto";

class Decider {
 public:
  Decider(const Topology& topology, const std::vector<RankDeviceInfo>& infos) : topology_(topology), infos_(infos) {}

  Result<DeviceDecision> Decide() const {
    std::string wanted;
    SMDDP_RETURN_IF_ERROR(FindWanted(&wanted));
    DeviceDecision decision;
    decision.warnings = Warnings();
    SMDDP_RETURN_IF_ERROR(FindMethods(wanted, &decision));
    return decision;
  }

 private:
  std::string Rank(int rank) const { return "rank " + std::to_string(topology_.global_rank(rank)); }
  std::string Host(int rank) const { return "host " + topology_.host_of(rank); }

  // Ranks that sent no device info adopt the setting of the others.
  Status FindWanted(std::string* wanted) const {
    int first = -1;
    for (int rank = 0; rank < static_cast<int>(infos_.size()); ++rank) {
      if (infos_[rank].wanted.empty()) continue;
      if (first < 0) first = rank;
      if (infos_[rank].wanted == infos_[first].wanted) continue;
      return Status(Reason::kBadState, "SMDDP_GPU_STAGE is " + infos_[first].wanted + " on " + Rank(first) + " and " +
                                           infos_[rank].wanted + " on " + Rank(rank) +
                                           ". Set it to the same on all ranks (mpirun -x SMDDP_GPU_STAGE).");
    }
    *wanted = first < 0 ? kAuto : infos_[first].wanted;
    return Status::Ok();
  }

  Status FindMethods(const std::string& wanted, DeviceDecision* decision) const {
    const auto has_device = [](const RankDeviceInfo& info) { return info.has_device; };
    const bool on_gpus =
        std::any_of(infos_.begin(), infos_.end(), has_device);  // or a CPU-only plan on a machine with a GPU
    const bool automatic = wanted == kAuto;
    for (const DeviceMethod method : {DeviceMethod::kAll, DeviceMethod::kNode}) {
      if (!on_gpus || (!automatic && wanted != NameOf(method))) continue;
      if (automatic && method == DeviceMethod::kNode && topology_.node_count() == 1) continue;  // as the one before
      const std::string obstacle = ObstacleTo(method);
      if (obstacle.empty()) {
        decision->methods.push_back(method);
      } else if (!automatic) {
        return Status(Reason::kBadState, "SMDDP_GPU_STAGE=" + wanted + ", but " + obstacle +
                                             ". SMDDP_GPU_STAGE=auto uses the best available method.");
      } else if (decision->why_not_nccl.empty()) {
        decision->why_not_nccl = obstacle;
      }
    }
    if (automatic || !on_gpus || wanted == NameOf(DeviceMethod::kHost)) decision->methods.push_back(DeviceMethod::kHost);
    if (!decision->methods.empty()) return Status::Ok();
    return Status(Reason::kBadArgument,
                  "SMDDP_GPU_STAGE is auto, nccl, nccl-node or host. Received: " + wanted + " from a rank.");
  }

  // "" when there is none.
  std::string ObstacleTo(DeviceMethod method) const {
    for (int rank = 0; rank < topology_.size(); ++rank) {
      if (!infos_[rank].has_device) return Rank(rank) + " (" + Host(rank) + ") has no gradients on a GPU";
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
      return Rank(first) + " (" + Host(first) + ") has NCCL " + std::to_string(infos_[first].group_version) + " and " +
             Rank(rank) + " (" + Host(rank) + ") has NCCL " + std::to_string(infos_[rank].group_version);
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
        return Rank(rank) + " and " + Rank(other) + " (" + Host(rank) + ") use the same GPU, " + device.name + " " +
               device.bus_id + ": NCCL needs one GPU per rank, and slices of one (MIG) do not count";
      }
    }
    return "";
  }

  // Only where NCCL was asked for: `auto` never lets ranks take a GPU by turns.
  static bool MayShare(const RankDeviceInfo& info) { return info.shares_device && info.wanted != kAuto; }

  // The ranks of a node by the device that they use.
  std::map<std::string, std::vector<int>> Users(const Group& node) const {
    std::map<std::string, std::vector<int>> users;
    for (const int rank : node.world_ranks()) {
      if (infos_[rank].has_device) users[infos_[rank].device.uuid].push_back(rank);
    }
    return users;
  }

  // Two ranks share a GPU although the node has others: most likely TensorFlow was not told which one to use.
  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings;
    for (const Group& node : topology_.nodes()) {
      const auto users = Users(node);
      const auto sees_more = [this](int rank) { return infos_[rank].visible > 1 || infos_[rank].device.index > 0; };
      const bool others =
          users.size() > 1 || std::any_of(node.world_ranks().begin(), node.world_ranks().end(), sees_more);
      for (const auto& [uuid, ranks] : users) {
        if (ranks.size() < 2 || !others) continue;
        const DeviceInfo& device = infos_[ranks[0]].device;
        warnings.push_back("Ranks " + Listed(ranks) + " (" + Host(ranks[0]) + ") use the same GPU (" + device.name +
                           ", " + device.bus_id +
                           "), and it is not the only one there: pin one GPU per rank before TensorFlow uses it: "
                           "tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU').");
      }
    }
    return warnings;
  }

  // "0, 1 and 5"
  std::string Listed(const std::vector<int>& ranks) const {
    std::string text;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
      text += std::to_string(topology_.global_rank(ranks[i]));
    }
    return text;
  }

  const Topology& topology_;
  const std::vector<RankDeviceInfo>& infos_;
};

}  // namespace

Result<DeviceDecision> Decide(const Topology& topology, const std::vector<RankDeviceInfo>& infos) {
  if (static_cast<int>(infos.size()) != topology.size()) {
    return Status(Reason::kInternal, "Expected one GPU description from each of " + std::to_string(topology.size()) +
                                         " ranks; received " + std::to_string(infos.size()) + " device infos.");
  }
  return Decider(topology, infos).Decide();
}

}  // namespace smddp
