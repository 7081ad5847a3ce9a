// How gradients on GPUs may be reduced, decided from every rank's description of its GPU. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "core/wire.h"
#include "device/device.h"
#include "topology/topology.h"

namespace smddp {

// How the ranks reduce what lies on their GPUs.
enum class DeviceMethod {
  kHost,  // copied to host memory, reduced there like any host tensor, and copied back
  kNode,  // NCCL inside the nodes that have several ranks; equal slices are summed by the CPUs between nodes
  kAll,   // NCCL among all ranks
};
inline const char* NameOf(DeviceMethod method) {
  constexpr const char* kNames[] = {"host", "nccl-node", "nccl"};
  return kNames[static_cast<int>(method)];
}

// One rank's description of its GPU, for the other ranks.
struct RankDeviceInfo {
  bool has_device = false;
  DeviceInfo device;      // if it has one
  int group_version = 0;  // of NCCL; 0: it cannot be used
  std::string why_no_group;
  bool shares_device = false;  // NCCL was told that ranks may share a GPU

  SMDDP_FIELDS(has_device, device.index, device.name, device.uuid, device.bus_id, device.processors, group_version,
               why_no_group, shares_device);
};

struct DeviceDecision {
  // What may work, the best first; a method may still not start (runtime/gpu/method_agreement.h). Never empty.
  std::vector<DeviceMethod> methods;
  std::string why_not_nccl;  // why a method that `auto` prefers is not among them; "": all are
};
// `infos` by rank of the topology; ranks that sent none have `has_device` false. `wanted`: SMDDP_GPU_STAGE, equal on
// all ranks. The result is the same on all ranks. An error says why the user's setting is impossible; it is the same on
// all ranks too.
//   auto: nccl where every rank has a GPU of its own and NCCL in one version; nccl-node where that is so on every node
//   with several ranks; host. A setting by name: that method alone.
Result<DeviceDecision> Decide(const Topology& topology, const std::string& wanted,
                              const std::vector<RankDeviceInfo>& infos);

}  // namespace smddp
