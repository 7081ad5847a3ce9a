// The GPU memory of the other ranks of my node: the notes that describe it, and the imported blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "collectives/device/buffer_pool.h"
#include "collectives/fabric.h"
#include "collectives/transfers.h"
#include "device/device.h"

namespace smddp {

// "This block of mine may be read now." Fixed length, so that the receiver knows it.
struct PeerNote {
  static constexpr size_t kMaxExported = 232;

  uint64_t process = 0;  // a number of the sender's process
  uint64_t address = 0;  // in that process
  uint32_t block = 0;    // BufferLease::number
  uint32_t exported_bytes = 0;
  char exported[kMaxExported] = {};
};

// Threads: the engine's.
class Peers {
 public:
  explicit Peers(Device& device) : device_(device) {}
  ~Peers() { Close(); }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // What the other ranks need to read `memory`.
  Result<PeerNote> NoteOf(BufferLease* memory) const;
  // The memory that `rank`'s note describes; each block is imported once.
  Result<std::byte*> Open(int rank, const PeerNote& note);
  // Closes all imported memory. No work on it may be under way.
  void Close();
  // Keeps it until the process ends.
  void Leak() { imported_.clear(); }

 private:
  struct Imported {
    std::string exported;
    void* memory;
  };

  Device& device_;
  std::map<std::pair<int, uint32_t>, Imported> imported_;  // by rank and block
};

// Notes of one kind to and from the other members of my node, in one task.
class PeerNotes {
 public:
  PeerNotes(const Fabric& fabric, Tag tag) : fabric_(fabric), tag_(tag) {}

  Status Send(int member, const PeerNote& note);
  Status Expect(int member);
  // Calls visit(member, note) for each note that has arrived since the last call. True: there was one.
  Result<bool> ForEachNew(const std::function<Status(int member, const PeerNote& note)>& visit);
  bool all_here() const { return expected_.empty(); }
  // Have all sends completed?
  Result<bool> Sent();
  // "waiting for rank 3"
  std::string Describe() const;

 private:
  struct One {
    One(Transport& transport, int member) : member(member), transfers(transport) {}
    int member;
    PeerNote note;
    Transfers transfers;
  };

  const Fabric& fabric_;
  const Tag tag_;
  std::list<One> sent_, expected_;
};

}  // namespace smddp
