#include "collectives/node/parts.h"

#include <algorithm>

#include "core/slice.h"

namespace smddp {
namespace {

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Takes the regions of all places piece by piece.
class Regions {
 public:
  Regions(const Cut& cut, int my_place, const std::vector<Piece>& tensors, DType dtype)
      : cut_(cut), my_place_(my_place), tensors_(tensors), dtype_(dtype), at_(cut.parting.parts) {}

  int64_t Length() const {
    int64_t length = 0;
    for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) length += cut_.part_of(tensor, 0).size();
    return length;
  }

  // The next `count` elements of a place's region.
  void Take(int place, int64_t count, std::vector<Piece>* pieces) {
    Position& at = at_[place];
    while (count > 0 && at.tensor < tensors_.size()) {
      const Range part = cut_.part_of(at.tensor, place);
      const int64_t length = cut_.part_of(at.tensor, 0).size();
      const int64_t available = std::min(part.end, tensors_[at.tensor].elements) - part.begin;
      const bool inside = at.element < available;
      const int64_t next = std::min(count, (inside ? available : length) - at.element);
      pieces->push_back(PieceAt(place, at, inside ? part.begin + at.element : -1, next));
      count -= next;
      at.element += next;
      if (at.element == length) at = {at.tensor + 1, 0};
    }
    if (count > 0) pieces->push_back({nullptr, nullptr, count});
  }

 private:
  struct Position {
    size_t tensor = 0;
    int64_t element = 0;  // of the part
  };

  // `in_whole`: the element of the whole tensor; -1: none, behind its end.
  Piece PieceAt(int place, const Position& at, int64_t in_whole, int64_t elements) const {
    const bool mine = place == my_place_, gathers = cut_.parting.mode == PartMode::kGather;
    const int64_t from = gathers ? at.element : in_whole, to = gathers ? in_whole : at.element;
    const Piece& tensor = tensors_[at.tensor];
    Piece piece = {nullptr, nullptr, elements};
    if (in_whole >= 0 && (mine || !gathers)) piece.input = ElementAt(tensor.input, from, dtype_);
    if (tensor.output != nullptr && (gathers ? to >= 0 : mine && (cut_.padded || in_whole >= 0))) {
      piece.output = ElementAt(tensor.output, to, dtype_);
    }
    return piece;
  }

  const Cut& cut_;
  const int my_place_;
  const std::vector<Piece>& tensors_;
  const DType dtype_;
  std::vector<Position> at_;  // by place
};

}  // namespace

Status CheckParts(const Topology& topology, int64_t chunk_bytes, int parts) {
  const int size = topology.size(), local = topology.local_size();
  const auto refused = [](const auto&... why) { return Status(Reason::kBadArgument, why..., "."); };
  if (!topology.uniform()) {
    return refused("Parts need the same number of ranks on every node. Received: ", size, " ranks on ",
                   topology.node_count(), " nodes, here ", local);
  }
  if (parts < 1 || size % parts != 0 || (local % parts != 0 && parts % local != 0)) {
    return refused("The number of parts must divide the ", size, " ranks, and divide the ", local,
                   " ranks of a node or be a multiple of them. Received: ", parts, " parts");
  }
  const auto least = size * static_cast<int64_t>(kSliceAlignment);
  if (chunk_bytes >= least) return Status::Ok();
  return refused("For parts on ", size, " ranks SMDDP_CHUNK_BYTES must be ", least,
                 " or more. Received: ", chunk_bytes);
}

int PlaceInParts(const Topology& topology, int rank, int parts) {
  const int node = topology.node_of(rank);
  return (node * topology.local_size() + topology.nodes()[node].position_of(rank)) % parts;
}

std::unique_ptr<FusedView> MakePartedView(const Fabric& fabric, const Cut& cut, const std::vector<Piece>& tensors,
                                          DType dtype, DType wire, Scaling before, Scaling after) {
  const Topology& topology = fabric.topology;
  const int parts = cut.parting.parts;
  const bool gathers = cut.parting.mode == PartMode::kGather;
  const int locals = gathers ? std::min(parts, topology.local_size()) : topology.local_size();
  const int nodes = gathers ? parts / locals : topology.node_count();
  Regions regions(cut, PlaceInParts(topology, topology.rank(), parts), tensors, dtype);

  // As few chunks as fit into the slots (transport/shm/node_layout.h), filled evenly.
  const auto granule = static_cast<int64_t>(kSliceAlignment / SizeOf(wire));
  const int64_t of_node = fabric.chunk_bytes / topology.local_size() / static_cast<int64_t>(SizeOf(wire));
  const int64_t most = of_node / nodes / granule * granule;
  const int64_t turns = locals * nodes / parts;  // sub-blocks of a place in a chunk
  const int64_t length = regions.Length();
  const int64_t chunks = (length + turns * most - 1) / (turns * most);
  const int64_t each = chunks == 0 ? 0 : RoundUp((length + turns * chunks - 1) / (turns * chunks), granule);

  std::vector<Piece> pieces;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int at = 0; at < locals * nodes; ++at) {
      regions.Take((at % nodes * locals + at / nodes) % parts, each, &pieces);
    }
  }
  return std::make_unique<FusedView>(dtype, wire, pieces, before, after, fabric.compute, cut.parting,
                                     each * locals * nodes);
}

}  // namespace smddp
