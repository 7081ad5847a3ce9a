#include "runtime/bootstrap/fabric_parts.h"

namespace smddp {

NodeLayout FabricParts::LayoutFor(const Topology& topology, const Env& env) {
  return NodeLayout(topology.local_size(), topology.rail_count(), static_cast<size_t>(env.chunk_bytes));
}

FabricParts::FabricParts(Topology topology, const Env& env, const RailChoice& rail, std::vector<std::byte*> segments,
                         std::shared_ptr<void> memory, std::unique_ptr<Transport> far,
                         std::function<bool(int member)> lives, std::vector<BufferView> tensors)
    : topology_(std::move(topology)),
      memory_(std::move(memory)),
      lives_(std::move(lives)),
      layout_(LayoutFor(topology_, env)),
      node_(topology_.local_rank(), layout_, std::move(segments), std::move(tensors)),
      near_(topology_.node(), node_),
      far_(std::move(far)),
      sent_before_(far_ != nullptr ? far_->bytes_sent() : 0),
      transport_(topology_, near_, topology_.node_count() > 1 ? far_.get() : nullptr),
      fabric_{topology_, node_, transport_, CpuCompute(env.cpu_isa.c_str()), env.chunk_bytes, rail} {}

}  // namespace smddp
