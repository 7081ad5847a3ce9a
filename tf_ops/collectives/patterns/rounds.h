// A collective as a list of rounds that one member executes in order. No communication here.
#pragma once

#include <vector>

namespace smddp {

// Consecutive blocks of the data, first ... first + count - 1.
struct BlockSpan {
  int first = 0;
  int count = 0;
};

// In a round a member sends blocks to one peer and receives blocks from one peer; the round ends when both are done.
struct Round {
  enum class Then {
    kKeep,           // received data replace the existing data
    kAddAfterMine,   // mine + theirs
    kAddBeforeMine,  // theirs + mine
  };

  int send_to = -1;  // position in the group; -1: nothing is sent
  BlockSpan send;
  int recv_from = -1;
  BlockSpan recv;
  Then then = Then::kKeep;
};

struct Rounds {
  int blocks = 1;  // into how many equal blocks the data are cut
  std::vector<Round> list;
};

}  // namespace smddp
