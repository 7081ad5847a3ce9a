#include "collectives/node/chunk.h"

#include "core/shard.h"

namespace smddp {

Range Chunk::shard_of(int reducer) const {
  const int reducers = fabric.topology.rail_count();
  if (reducer >= reducers) return {range.end, range.end};
  const Range inside = ShardOf(range.size(), element_size(), reducers, reducer);
  return {range.begin + inside.begin, range.begin + inside.end};
}

std::vector<int> Chunk::other_reducers() const {
  std::vector<int> reducers;
  for (int reducer = 0; reducer < fabric.topology.rail_count(); ++reducer) {
    if (reducer != me() && !shard_of(reducer).empty()) reducers.push_back(reducer);
  }
  return reducers;
}

std::vector<int> Chunk::other_members() const {
  std::vector<int> members;
  for (int member = 0; member < fabric.node.size(); ++member) {
    if (member != me()) members.push_back(member);
  }
  return members;
}

}  // namespace smddp
