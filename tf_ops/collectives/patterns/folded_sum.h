// A sum of one term for each member, in the order of recursive doubling (patterns/doubling.h).
#pragma once

#include <utility>
#include <vector>

#include "collectives/patterns/doubling.h"
#include "core/status.h"

namespace smddp {

// `add(into, first, second)` returns a Status. `into` may be one of the terms, whose memory is used up on the way.
template <class Add>
Status FoldedSum(const std::vector<void*>& terms, void* into, Add add) {
  const Folding folding(static_cast<int>(terms.size()));
  std::vector<void*> leaves(folding.places());
  for (int place = 0; place < folding.places(); ++place) {
    const int member = folding.member_at(place);
    leaves[place] = terms[member];
    if (place < folding.pairs()) SMDDP_RETURN_IF_ERROR(add(leaves[place], terms[member - 1], terms[member]));
  }
  for (int distance = folding.places() / 2; distance > 0; distance /= 2) {
    for (int place = 0; place < distance; ++place) {
      void* const sum = distance == 1 ? into : leaves[place];
      SMDDP_RETURN_IF_ERROR(add(sum, leaves[place], leaves[place + distance]));
    }
  }
  return Status::Ok();
}

}  // namespace smddp
