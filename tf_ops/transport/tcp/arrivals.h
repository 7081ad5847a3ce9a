// Joins the receives that were asked for with the messages that come, by peer and tag, each in their order. A message
// that comes before it was asked for is kept in memory of this class until then. Pure logic.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "core/buffer.h"
#include "core/status.h"
#include "transport/transport.h"

namespace smddp {

class Arrivals {
 public:
  // A message on its way.
  struct Arrival {
    Ticket ticket = 0;                  // who has asked for it; 0: nobody yet
    std::unique_ptr<std::byte[]> kept;  // its bytes, unless they go straight to who has asked
    size_t size = 0;
    bool complete = false;
  };
  using Shared = std::shared_ptr<Arrival>;

  // A receive into `into`.
  Status Ask(Ticket ticket, int peer, uint32_t tag, BufferView into);
  // A message begins to arrive. `*into`: where its bytes must be written.
  Result<Shared> Begin(int peer, uint32_t tag, size_t size, BufferView* into);
  // All its bytes are there.
  void End(Arrival* arrival);
  // True once, when that receive is complete; nothing when there is no such receive.
  bool Has(Ticket ticket) const { return asked_.count(ticket) != 0; }
  bool Take(Ticket ticket);
  bool empty() const { return asked_.empty(); }
  // Nobody asks any more; what comes from now on is dropped when it is complete.
  void Clear();

 private:
  using Place = std::pair<int, uint32_t>;  // peer and tag
  struct Asked {
    int peer = -1;
    BufferView into;
    bool complete = false;
  };
  Status Check(const Asked& asked, size_t size) const;

  std::unordered_map<Ticket, Asked> asked_;
  std::map<Place, std::deque<Ticket>> open_;   // receives without a message, in order
  std::map<Place, std::deque<Shared>> early_;  // messages without a receive, in order
  bool cleared_ = false;
};

}  // namespace smddp
