#include "collectives/node/chunk.h"

#include "core/slice.h"

namespace smddp {

int Chunk::reducers() const {
  return gathers() ? std::min(call.view->parting().parts, fabric.node.size()) : fabric.topology.rail_count();
}

bool Chunk::Shares(const void* data, Range of) const {
  return data != nullptr && bytes_of(of) >= kLeastReferredBytes && fabric.node.Shares(data, bytes_of(of));
}

Range Chunk::slice_of(int reducer) const {
  const int index = reducer - first_reducer();
  if (index < 0 || index >= reducers()) return {range.end, range.end};
  const Range inside = SliceOf(range.size(), element_size(), reducers(), index);
  return {range.begin + inside.begin, range.begin + inside.end};
}

std::vector<int> Chunk::other_reducers() const {
  std::vector<int> others;
  for (int reducer = first_reducer(); reducer < first_reducer() + reducers(); ++reducer) {
    if (reducer != me() && !slice_of(reducer).empty()) others.push_back(reducer);
  }
  return others;
}

std::vector<int> Chunk::sources() const {
  if (call.view->parting().mode != PartMode::kReduce) return other_reducers();
  std::vector<int> of_my_place;
  for (int member : other_members()) {
    if ((member - me()) % call.view->parting().parts == 0) of_my_place.push_back(member);
  }
  return of_my_place;
}

std::vector<int> Chunk::other_members() const {
  std::vector<int> members;
  for (int member = 0; member < fabric.node.size(); ++member) {
    if (member != me()) members.push_back(member);
  }
  return members;
}

}  // namespace smddp
