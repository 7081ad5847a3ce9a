// One way to allreduce over point-to-point messages; one file each in p2p/.
#pragma once

#include <vector>

#include "collectives/task.h"
#include "compute/compute.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace smddp {

// `data` is summed in place. Every member of the group makes the same call.
struct RailCall {
  uint32_t operation = 0;
  uint16_t step = 0;  // the chunk's number
  BufferView data;
  int64_t elements = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

struct AlgorithmInfo {
  const char* name;
  const char* summary;  // one line: what happens, in which order
  const char* steps;    // for P members
  const char* traffic;  // bytes sent per member, for S bytes of data
};

class AllreduceAlgorithm {
 public:
  virtual ~AllreduceAlgorithm() = default;
  virtual const AlgorithmInfo& info() const = 0;
  virtual TaskPtr Begin(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                        const RailCall& call) const = 0;
};

// All that exist, the default first.
const std::vector<const AllreduceAlgorithm*>& Algorithms();

}  // namespace smddp
