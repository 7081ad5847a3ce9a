// Index arithmetic of a binomial tree over positions 0..size-1, rooted anywhere. No communication here.
#pragma once

#include <vector>

namespace smddp {

struct TreePlace {
  int parent = -1;            // -1: I am the root
  std::vector<int> children;  // the children with the largest subtrees first
};

inline TreePlace BinomialTree(int size, int root, int me) {
  const int place = (me - root + size) % size;  // as if the root were 0
  TreePlace tree;
  int step = 1;
  while (step < size && (place & step) == 0) step <<= 1;
  if (place != 0) tree.parent = (place - step + root) % size;
  for (step >>= 1; step > 0; step >>= 1) {
    if (place + step < size) tree.children.push_back((place + step + root) % size);
  }
  return tree;
}

}  // namespace smddp
