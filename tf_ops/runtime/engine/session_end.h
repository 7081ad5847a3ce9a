// The last moments of a session, when nothing can be asked of it any more: what is waited for, and how long.
//
// Threads: the engine's.
#pragma once

#include <functional>

#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/engine/departures.h"
#include "runtime/engine/loop_pace.h"

namespace smddp {

class SessionEnd {
 public:
  // Reads control messages and, if there are none, looks for lost ranks. `*moved`: some were more than signs of life.
  // False: the session has failed.
  using Read = std::function<bool(bool look, bool* moved)>;
  // All outlive it.
  SessionEnd(FabricParts& parts, const Departures& departures, LoopPace& pace, Read read)
      : parts_(parts), departures_(departures), pace_(pace), read_(std::move(read)) {}

  // Until all ranks have ended their sessions, or this one has failed. MPI_Finalize waits for all ranks as well, but
  // reads no message and has no deadline: what happens to them meanwhile is seen here. Not OK: the transport failed.
  Status AwaitDepartures();
  // For the ranks of this node to give up memory of this one: they do so before their goodbyes. False: not all did in
  // time.
  bool AwaitReaders();
  // Until all messages are on their way.
  void Flush();

 private:
  FabricParts& parts_;
  const Departures& departures_;
  LoopPace& pace_;
  const Read read_;
};

}  // namespace smddp
