// Index arithmetic of a ring over P members and P blocks.
//
// In step s of the first half member m sends block m - s to its right neighbour, which adds its own: after P - 1
// steps block b has passed all members, starting at member b, and is complete at member b - 1. In the second half the
// sums pass all members once more.
#pragma once

#include "collectives/patterns/rounds.h"

namespace smddp {

inline Rounds RingRounds(int size, int me) {
  const auto wrap = [size](int position) { return (position % size + size) % size; };
  Rounds rounds;
  rounds.blocks = size;
  for (int step = 0; step < 2 * (size - 1); ++step) {
    const Round::Then then = step < size - 1 ? Round::Then::kAddBeforeMine : Round::Then::kKeep;
    rounds.list.push_back({wrap(me + 1), {wrap(me - step), 1}, wrap(me - 1), {wrap(me - step - 1), 1}, then});
  }
  return rounds;
}

}  // namespace smddp
