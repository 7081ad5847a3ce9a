// Where the ranks of a job are that no MPI has started.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace smddp {

using Bits128 = std::array<uint64_t, 2>;

// What a rank must know to reach the others; smddp_tf/rendezvous finds it.
struct World {
  int rank = 0;
  std::vector<std::string> addresses;  // where each rank listens, by rank: "IP:PORT"; empty: there is no such job
  Bits128 key = {};                    // the job's, known to its ranks only
  int listener = -1;                   // this rank's listening socket, which passes to the session
};

}  // namespace smddp
