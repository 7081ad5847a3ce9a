// The end of a session, after the last request: what is waited for, and how long.
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
  // Reads control messages and, if there are none, checks for lost ranks. `*moved`: at least one message was not a
  // sign of life. False: the session has failed.
  using Read = std::function<bool(bool* moved)>;
  // All outlive it.
  SessionEnd(FabricParts& parts, const Departures& departures, LoopPace& pace, Read read)
      : parts_(parts), departures_(departures), pace_(pace), read_(std::move(read)) {}

  // Waits until all ranks have ended their sessions, or this one has failed. MPI_Finalize waits for all ranks as
  // well, but reads no messages and has no deadline; here a rank lost in the meantime is detected. An error: the
  // transport failed.
  Status AwaitDepartures();
  // Waits until all messages have been sent.
  void Flush();

 private:
  FabricParts& parts_;
  const Departures& departures_;
  LoopPace& pace_;
  const Read read_;
};

}  // namespace smddp
