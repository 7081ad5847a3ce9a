// How gradients on GPUs are reduced is decided once per session, from every rank's description of its GPU. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "core/wire.h"
#include "device/device.h"
#include "topology/topology.h"

namespace smddp {

// How the ranks of a node reduce what lies on their GPUs.
enum class DeviceMethod {
  kHost,   // copied to host memory, reduced there like any host tensor, and copied back
  kGroup,  // every rank of a node has a GPU of its own; NCCL, where there are several
};
inline const char* NameOf(DeviceMethod method) {
  constexpr const char* kNames[] = {"host", "nccl"};
  return kNames[static_cast<int>(method)];
}

// One rank's description of its GPU, for the other ranks.
struct RankDeviceInfo {
  bool has_device = false;
  DeviceInfo device;      // if it has one
  int visible = 0;        // devices that the process sees
  std::string wanted;     // SMDDP_GPU_STAGE of this rank
  int group_version = 0;  // of NCCL; 0: it cannot be used
  std::string why_no_group;
  bool shares_device = false;  // NCCL was told that ranks may share a GPU
  std::string group_id;        // of the first rank of a node: what NCCL's members need (DeviceGroupLibrary::MakeId)

  SMDDP_FIELDS(has_device, device.index, device.name, device.uuid, device.bus_id, device.bytes, device.processors,
               visible, wanted, group_version, why_no_group, shares_device, group_id);
  bool IsWellFormed() const { return true; }
};

struct DeviceDecision {
  DeviceMethod method = DeviceMethod::kHost;
  // For users, reported by rank 0: for example two ranks of a node that share one of several GPUs.
  std::vector<std::string> warnings;
};
// `infos` by rank of the topology; ranks that sent none have `has_device` false. The result is the same on all ranks.
// An error says why the user's setting is impossible; it is the same on all ranks too.
//   auto: nccl where all ranks have it and their own GPU; host otherwise.
Result<DeviceDecision> Decide(const Topology& topology, const std::vector<RankDeviceInfo>& infos);

}  // namespace smddp
