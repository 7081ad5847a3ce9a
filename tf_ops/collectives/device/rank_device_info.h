// Which way gradients on GPUs take is decided once in a session, from what every rank says of its own GPU. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "device/device.h"
#include "topology/topology.h"

namespace smddp {

// How the ranks of a node reduce what lies on their GPUs.
enum class DeviceMethod {
  kHost,   // copied to host memory, reduced there as if it had been there, and copied back
  kPeer,   // every rank sums its shard from the others' GPU memory (CUDA IPC); the ranks of a node share one GPU
  kGroup,  // NCCL; every rank of a node has a GPU of its own
};
// "host", "ipc", "nccl"
const char* NameOf(DeviceMethod method);

// What one rank says of itself to the others.
struct RankDeviceInfo {
  bool has_device = false;
  DeviceInfo device;      // if it has one
  int visible = 0;        // devices that the process sees
  std::string wanted;     // SMDDP_GPU_STAGE of this rank
  int group_version = 0;  // of NCCL; 0: it cannot be used
  std::string why_no_group;
  std::string group_id;  // of the first rank of a node: what NCCL's members need (DeviceGroupLibrary::MakeId)
  bool direct = false;   // may messages between nodes lie in GPU memory?
};
std::string Encode(const RankDeviceInfo& info);
bool Decode(std::string_view text, RankDeviceInfo* info);

struct DeviceDecision {
  DeviceMethod method = DeviceMethod::kHost;
  // Between nodes messages go from GPU memory to GPU memory (GPU-direct), not by way of pinned memory.
  bool direct = false;
  // For people, from rank 0: two ranks of a node with one GPU that has others beside it, ...
  std::vector<std::string> warnings;
};
// `infos` by rank of the topology; ranks that sent none have `has_device` false. The same on all ranks. An error: what
// the user wanted cannot be done, and why; the same on all ranks.
//   auto: nccl where all ranks have it and a GPU of their own; ipc where the ranks of each node share one that can
//   export; host otherwise.
Result<DeviceDecision> Decide(const Topology& topology, const std::vector<RankDeviceInfo>& infos);

}  // namespace smddp
