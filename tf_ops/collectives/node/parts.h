// Sums in parts. Ranks at positions p = node * (ranks of a node) + local rank form groups of `parts` consecutive ones;
// a rank's place is p % parts, and the part of that place of every tensor is its own. Two halves of an allreduce:
// kReduce gives each rank the sum of its part, kGather gives all ranks of a group their parts together.
//
// The view of such a call is laid out so that the stages of an allreduce do the work. Every chunk holds equal
// sub-blocks in the order [local rank][node], of kReduce one for each rank, of kGather one for each of a group; so the
// slices by local ranks, and by nodes within them, are these sub-blocks. Each continues the region of its rank's
// place: the place's parts of all tensors, one after another. The end is filled up with zeros.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/node/chunk.h"

namespace smddp {

// An error says why the ranks cannot share `parts` parts.
Status CheckParts(const Topology& topology, int64_t chunk_bytes, int parts);
int PlaceInParts(const Topology& topology, int rank, int parts);

// How tensors are cut into parts.
struct Cut {
  Parting parting;
  // The elements of tensor `tensor` that form the part of `place`; that of place 0 is the longest. Elements behind the
  // end of the tensor are zeros.
  std::function<Range(size_t tensor, int place)> part_of;
  bool padded;  // outputs have the length of place 0's part, and zeros at the end
};
// `tensors` are whole; their outputs (kReduce) or inputs (kGather) hold this rank's part alone.
std::unique_ptr<FusedView> MakePartedView(const Fabric& fabric, const Cut& cut, const std::vector<Piece>& tensors,
                                          DType dtype, DType wire, Scaling before, Scaling after);

}  // namespace smddp
