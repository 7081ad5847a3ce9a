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
    const bool adding = step < size - 1;
    Round round;
    round.send_to = wrap(me + 1);
    round.send = {wrap(me - step), 1};
    round.recv_from = wrap(me - 1);
    round.recv = {wrap(me - step - 1), 1};
    round.then = adding ? Round::Then::kAddBeforeMine : Round::Then::kKeep;
    rounds.list.push_back(round);
  }
  return rounds;
}

}  // namespace smddp
