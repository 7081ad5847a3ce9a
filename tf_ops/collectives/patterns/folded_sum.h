// Sums one term per member, in the order of recursive doubling (patterns/doubling.h).
#pragma once

#include <vector>

#include "collectives/patterns/doubling.h"
#include "core/dtype.h"
#include "core/status.h"

namespace smddp {

// `add(into, first, second)` returns a Status. `into` may be one of the terms, whose memory is overwritten.
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

// The sum of a direct exchange. Half types: all terms in one pass, in the order of the members, rounded once. Others:
// folded. `reduce(into, sources, count)` returns a Status.
template <class Reduce>
Status SumTerms(const std::vector<void*>& terms, void* into, DType dtype, Reduce reduce) {
  if (IsHalf(dtype)) return reduce(into, terms.data(), static_cast<int>(terms.size()));
  return FoldedSum(terms, into, [&](void* to, const void* first, const void* second) {
    const void* const sources[] = {first, second};
    return reduce(to, sources, 2);
  });
}

}  // namespace smddp
