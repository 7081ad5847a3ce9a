// Index arithmetic of recursive doubling and halving over any number of members.
//
// Let Q be the largest power of two up to P and R = P - Q. The first 2R members form pairs: the left one of a pair
// sends its data to the right one ("fold"), which takes part for both and sends the result back at the end. The Q
// members that take part have positions 0 ... Q - 1. In a step of distance d, position p exchanges with p ^ d;
// distances fall from Q / 2 to 1.
//
// So every element is summed in one tree, by either algorithm: leaf p is a pair's sum or a single member's value;
// with each distance sum(p) = sum(p) + sum(p ^ d), the lower position first. FoldedSum (rail/direct_exchange.cc)
// follows it too: these algorithms give the same bits.
#pragma once

#include <algorithm>

#include "collectives/patterns/rounds.h"

namespace smddp {

class Folding {
 public:
  explicit Folding(int members) : members_(members) {
    while (2 * places_ <= members_) places_ *= 2;
  }

  int places() const { return places_; }            // Q
  int pairs() const { return members_ - places_; }  // R
  int fold() const { return pairs() > 0 ? 1 : 0; }  // [P>Q]
  int doublings() const {                           // log2(Q)
    int doublings = 0;
    while ((1 << doublings) < places_) ++doublings;
    return doublings;
  }
  // -1: the left member of a pair, which does not take part.
  int place_of(int member) const {
    if (member >= 2 * pairs()) return member - pairs();
    return member % 2 == 1 ? member / 2 : -1;
  }
  int member_at(int place) const { return place < pairs() ? 2 * place + 1 : place + pairs(); }

 private:
  int members_;
  int places_ = 1;
};

// The group of `distance` blocks that holds block `place`.
inline BlockSpan AlignedBlocks(int place, int distance) { return {place & ~(distance - 1), distance}; }

inline Round SendTo(int peer, BlockSpan blocks) { return {peer, blocks, -1, {}}; }
inline Round ReceiveFrom(int peer, BlockSpan blocks, Round::Then then) { return {-1, {}, peer, blocks, then}; }

// Adds the fold before, and the return of the result after, the rounds that `between` makes for my position.
template <class Between>
Rounds Folded(int members, int me, int blocks, Between between) {
  const Folding folding(members);
  Rounds rounds;
  rounds.blocks = blocks;
  const BlockSpan all = {0, blocks};
  const int place = folding.place_of(me);
  if (place < 0) {
    rounds.list = {SendTo(me + 1, all), ReceiveFrom(me + 1, all, Round::Then::kKeep)};
    return rounds;
  }
  const bool paired = place < folding.pairs();
  if (paired) rounds.list.push_back(ReceiveFrom(me - 1, all, Round::Then::kAddBeforeMine));
  for (const Round& round : between(folding, place)) rounds.list.push_back(round);
  if (paired) rounds.list.push_back(SendTo(me - 1, all));
  return rounds;
}

inline Round::Then AddInOrder(int place, int peer_place) {
  return peer_place < place ? Round::Then::kAddBeforeMine : Round::Then::kAddAfterMine;
}

// The steps in which positions exchange all data, distances rising from 1.
inline std::vector<Round> ExchangesOfAll(const Folding& folding, int place) {
  std::vector<Round> list;
  for (int distance = 1; distance < folding.places(); distance *= 2) {
    const int peer = folding.member_at(place ^ distance);
    list.push_back({peer, {0, 1}, peer, {0, 1}, AddInOrder(place, place ^ distance)});
  }
  return list;
}

// All data are exchanged in every step: few messages, many bytes.
inline Rounds RecursiveDoublingRounds(int members, int me) {
  return Folded(members, me, /*blocks=*/1, [](const Folding& folding, int place) {
    std::vector<Round> list = ExchangesOfAll(folding, place);
    std::reverse(list.begin(), list.end());
    return list;
  });
}

// The same in the order of a tree that joins neighbours first, for operations that are not associative.
inline Rounds NeighboursFirstRounds(int members, int me) { return Folded(members, me, /*blocks=*/1, ExchangesOfAll); }

// Halving: sends the half that the peer keeps, until only the sum of block `place` is left. Doubling: the reverse,
// with sums.
inline Rounds HalvingDoublingRounds(int members, int me) {
  return Folded(members, me, Folding(members).places(), [](const Folding& folding, int place) {
    std::vector<Round> list;
    for (int distance = folding.places() / 2; distance > 0; distance /= 2) {
      const int peer = folding.member_at(place ^ distance);
      list.push_back({peer, AlignedBlocks(place ^ distance, distance), peer, AlignedBlocks(place, distance),
                      AddInOrder(place, place ^ distance)});
    }
    for (int distance = 1; distance < folding.places(); distance *= 2) {
      const int peer = folding.member_at(place ^ distance);
      list.push_back({peer, AlignedBlocks(place, distance), peer, AlignedBlocks(place ^ distance, distance)});
    }
    return list;
  });
}

}  // namespace smddp
