// Control messages that wait for the end of a part of the loop's round: those for one rank travel as one message, in
// their order. Reading a batch is the engine's (Engine::ReadControl).
//
// Threads: the engine's.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/control/messages.h"

namespace smddp {

class Outbox {
 public:
  void Add(int to, std::string message) { waiting_[to].push_back(std::move(message)); }
  bool empty() const { return waiting_.empty(); }

  // Calls send(to, message) for every rank that has messages. What `send` adds waits for the next call.
  template <class Send>
  void Flush(Send send) {
    for (auto& [to, messages] : std::exchange(waiting_, {})) {
      send(to, messages.size() == 1 ? std::move(messages.front()) : Encode(Batch{std::move(messages)}));
    }
  }

 private:
  std::map<int, std::vector<std::string>> waiting_;
};

}  // namespace smddp
