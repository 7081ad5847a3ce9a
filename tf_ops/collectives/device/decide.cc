// Each method between GPUs has its requirements. The user is told the first one that is not met, by rank.
#include <algorithm>

#include "collectives/device/rank_device_info.h"

namespace smddp {
namespace {

constexpr char kAuto[] = "auto";

using Infos = std::vector<RankDeviceInfo>;  // by rank

// "rank 3 (host h0)"
std::string Named(const Topology& topology, int rank) {
  return Concat("rank ", topology.global_rank(rank), " (host ", topology.host_name(rank), ")");
}

std::string ObstacleToVersions(const Topology& topology, const Infos& infos, const Group& members) {
  const int first = members.world_rank(0);
  for (const int rank : members.world_ranks()) {
    if (infos[rank].group_version != 0) continue;
    return Named(topology, rank) + " cannot use NCCL: " + infos[rank].why_no_group;
  }
  for (const int rank : members.world_ranks()) {
    if (infos[rank].group_version == infos[first].group_version) continue;
    return Concat(Named(topology, first), " has NCCL ", infos[first].group_version, " and ", Named(topology, rank),
                  " has NCCL ", infos[rank].group_version);
  }
  return "";
}

// Slices of one GPU (MIG) have different uuids, and NCCL counts them as one. Ranks may share a GPU only where NCCL was
// asked for: `auto` never lets ranks take a GPU by turns.
std::string ObstacleToDevices(const Topology& topology, const Infos& infos, const Group& node, bool automatic) {
  for (const int rank : node.world_ranks()) {
    const DeviceInfo& device = infos[rank].device;
    for (const int other : node.world_ranks()) {
      const DeviceInfo& its = infos[other].device;
      if (other <= rank || (infos[rank].shares_device && !automatic)) continue;
      if (device.uuid != its.uuid && device.bus_id != its.bus_id) continue;
      return Named(topology, rank) + " and " + Named(topology, other) + " use the same GPU, " + device.name + " " +
             device.bus_id +
             ": NCCL needs one per rank, and slices of one (MIG) do not count. If there are others, pin one per rank "
             "before TensorFlow uses it: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')";
    }
  }
  return "";
}

// "" when there is none.
std::string ObstacleTo(DeviceMethod method, const Topology& topology, const Infos& infos, bool automatic) {
  for (int rank = 0; rank < topology.size(); ++rank) {
    if (!infos[rank].has_device) return Named(topology, rank) + " has no gradients on a GPU";
  }
  std::string obstacle = method == DeviceMethod::kAll ? ObstacleToVersions(topology, infos, topology.all()) : "";
  for (const Group& node : topology.nodes()) {
    if (obstacle.empty() && node.size() > 1) obstacle = ObstacleToVersions(topology, infos, node);
    if (obstacle.empty()) obstacle = ObstacleToDevices(topology, infos, node, automatic);
  }
  return obstacle;
}

}  // namespace

Result<DeviceDecision> Decide(const Topology& topology, const std::string& wanted,
                              const std::vector<RankDeviceInfo>& infos) {
  DeviceDecision decision;
  const bool automatic = wanted == kAuto;
  const bool on_gpus = std::any_of(infos.begin(), infos.end(), [](const auto& info) { return info.has_device; });
  for (const DeviceMethod method : {DeviceMethod::kAll, DeviceMethod::kNode}) {
    if (!on_gpus || (!automatic && wanted != NameOf(method))) continue;
    if (automatic && method == DeviceMethod::kNode && topology.node_count() == 1) continue;  // as the one before
    const std::string obstacle = ObstacleTo(method, topology, infos, automatic);
    if (obstacle.empty()) {
      decision.methods.push_back(method);
    } else if (!automatic) {
      return Status(Reason::kBadState, "SMDDP_GPU_STAGE=", wanted, ", but ", obstacle,
                    ". SMDDP_GPU_STAGE=auto uses the best available method.");
    } else if (decision.why_not_nccl.empty()) {
      decision.why_not_nccl = obstacle;
    }
  }
  if (automatic || decision.methods.empty()) decision.methods.push_back(DeviceMethod::kHost);
  return decision;
}

}  // namespace smddp
