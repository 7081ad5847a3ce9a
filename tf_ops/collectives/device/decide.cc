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
    SMDDP_ASSIGN_OR_RETURN(decision.method, MethodFor(wanted));
    decision.warnings = Warnings();
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

  Result<DeviceMethod> MethodFor(const std::string& wanted) const {
    const auto has_device = [](const RankDeviceInfo& info) { return info.has_device; };
    const bool on_gpus =
        std::any_of(infos_.begin(), infos_.end(), has_device);  // or a CPU-only plan on a machine with a GPU
    if (wanted == NameOf(DeviceMethod::kHost) || !on_gpus) return DeviceMethod::kHost;
    if (wanted != kAuto && wanted != NameOf(DeviceMethod::kGroup)) {
      return Status(Reason::kBadArgument,
                    "SMDDP_GPU_STAGE is auto, nccl or host. Received: " + wanted + " from a rank.");
    }
    const std::string obstacle = ObstacleToGroup();
    if (obstacle.empty()) return DeviceMethod::kGroup;
    if (wanted == kAuto) return DeviceMethod::kHost;
    return Status(Reason::kBadState, "SMDDP_GPU_STAGE=" + wanted + ", but " + obstacle +
                                         ". SMDDP_GPU_STAGE=auto uses the best available method.");
  }

  // "" when there is none.
  std::string ObstacleToGroup() const {
    for (int rank = 0; rank < topology_.size(); ++rank) {
      if (!infos_[rank].has_device) return Rank(rank) + " (" + Host(rank) + ") has no gradients on a GPU";
    }
    for (const Group& node : topology_.nodes()) {
      if (std::string obstacle = ObstacleToGroup(node); !obstacle.empty()) return obstacle;
    }
    return "";
  }

  std::string ObstacleToGroup(const Group& node) const {
    if (node.size() == 1) return "";
    const int first = node.world_rank(0);
    for (const int rank : node.world_ranks()) {
      if (infos_[rank].group_version == 0) return Rank(rank) + " cannot use NCCL: " + infos_[rank].why_no_group;
    }
    for (const int rank : node.world_ranks()) {
      if (infos_[rank].group_version != infos_[first].group_version) {
        return Rank(first) + " has NCCL " + std::to_string(infos_[first].group_version) + " and " + Rank(rank) +
               " (the same host, " + topology_.host_of(rank) + ") has NCCL " +
               std::to_string(infos_[rank].group_version);
      }
    }
    for (const auto& [uuid, ranks] : Users(node)) {
      if (ranks.size() < 2 || MayShare(infos_[ranks[0]])) continue;
      return Rank(ranks[0]) + " and " + Rank(ranks[1]) + " (" + Host(ranks[0]) + ") use the same GPU, " +
             infos_[ranks[0]].device.name + " " + uuid + ": NCCL needs one GPU per rank";
    }
    return "";
  }

  // Only where NCCL was asked for: `auto` never lets ranks take a GPU by turns.
  static bool MayShare(const RankDeviceInfo& info) {
    return info.shares_device && info.wanted == NameOf(DeviceMethod::kGroup);
  }

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
