// Control messages between this rank and the others: those of one part of the loop's round for one rank are sent as
// one, in their order; those that arrive are passed to the components. Also which ranks have ended their sessions: they
// read nothing any more, or only until all have left.
//
// Threads: the engine's, except for the counters, any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/messages.h"
#include "runtime/health/departures.h"
#include "runtime/health/heartbeat.h"
#include "transport/transport.h"

namespace smddp {

class MessageRouter {
 public:
  // When a component receives its messages: until the session has failed, or until it ends.
  enum class Delivery { kUntilFailure, kAlways };

  // All outlive it. `components` hear of ranks that leave.
  MessageRouter(ControlBus& bus, Transport& transport, Departures& departures, Heartbeat& heartbeat,
                const std::vector<Component*>& components)
      : bus_(bus), transport_(transport), departures_(departures), heartbeat_(heartbeat), components_(components) {}
  // `reader` gets the messages of that type, which is none of those that are handled here.
  void Add(ControlType type, Component* reader, Delivery delivery) { readers_[type] = {reader, delivery}; }

  // Sent by the next Send; dropped when rank `to` has left.
  void Post(int to, std::string message);
  void Send();
  // Sends it at once, also to ranks that have left and still read.
  void PostToReaders(const std::vector<int>& ranks, const std::string& message);
  // True when there were messages; `*worked` when at least one of them was not a sign of life.
  bool Read(bool* worked);
  // The session ends: components receive nothing any more.
  void Close() { closed_ = true; }
  // Tells the other ranks that this one has left.
  void SayGoodbye(const Goodbye& goodbye);

  // Messages sent so far, and their bytes.
  int64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // A rank whose session has ended with its program, such as the last one that has; -1: none has.
  int ended_rank() const { return ended_rank_.load(std::memory_order_relaxed); }

 private:
  struct Reader {
    Component* component = nullptr;
    Delivery delivery = Delivery::kAlways;
  };

  Status SendNow(int to, std::string message);
  Status Deliver(int from, std::string_view message);
  Status OnGoodbye(int from, std::string_view message);
  Status OnDeparted(int from, std::string_view message);
  void Depart(int rank, const Goodbye& goodbye);

  ControlBus& bus_;
  Transport& transport_;
  Departures& departures_;
  Heartbeat& heartbeat_;
  const std::vector<Component*>& components_;
  std::map<ControlType, Reader> readers_;
  std::map<int, std::vector<std::string>> posted_;  // by rank
  std::set<int> posted_to_;                         // ranks of other nodes that this one has sent messages to
  bool closed_ = false;
  std::atomic<int64_t> messages_{0}, bytes_{0};
  std::atomic<int> ended_rank_{-1};
};

}  // namespace smddp
