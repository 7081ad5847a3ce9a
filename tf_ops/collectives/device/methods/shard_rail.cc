#include "collectives/device/methods/shard_rail.h"

namespace smddp {

RailCall ShardCall::Chunk(int index, Range range, std::byte* data) const {
  const size_t each = SizeOf(dtype());
  RailCall chunk;
  chunk.operation = call.call.operation;
  chunk.step = static_cast<uint16_t>(index);
  chunk.data = {data + range.begin * each, range.size() * each};
  chunk.elements = range.size();
  chunk.dtype = dtype();
  chunk.op = call.call.op;
  return chunk;
}

}  // namespace smddp
