// The timelines of all ranks, each in a file of its own. Rank 0 decides: it tells the others when to begin and to end.
// It writes into the file that the user named, the others beside that path, each on its own host (`FILE.rankN.part`).
// At the end each closes its part and answers. smddp_tf/timeline.py puts the files together.
//
// Times are rank 0's: ranks of its node read the same clock; of other nodes CLOCK_REALTIME is taken to agree with that
// of rank 0's node when the timeline begins.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "runtime/api/session.h"
#include "runtime/control/component.h"
#include "runtime/timeline/timeline.h"
#include "topology/topology.h"

namespace smddp {

class TimelineGroup : public Component {
 public:
  using Done = std::function<void(TimelineParts)>;
  // The bus outlives it.
  explicit TimelineGroup(ControlBus& bus)
      : bus_(bus), topology_(bus.topology()), mine_(bus.trace(), bus.topology().rank()) {}

  // Rank 0: all begin. Elsewhere: begins to record, for the file that rank 0 tells of before or after.
  Status Start(const std::string& path, bool mark_cycles);
  // Rank 0: all end; `done` is called when each of the others has answered or left, or by GiveUp. Elsewhere: forgets
  // what was recorded for a file that rank 0 has not told of, closes this rank's part if it is `leaving`, and calls
  // `done`.
  void Stop(bool leaving, Done done);
  // Who has not answered will not.
  void GiveUp() { EndWhenAnswered(/*give_up=*/true); }

  Status OnMessage(int from, std::string_view bytes) override;
  void OnDeparture(int rank) override;
  // The files are closed, and stay.
  void OnFailure(const Status& why) override;

 private:
  struct Message;
  bool Read(int from, const Message& message);
  void OnStart(const Message& message);
  void ClosePart();
  void EndWhenAnswered(bool give_up);
  void End(TimelineParts parts);

  ControlBus& bus_;
  const Topology& topology_;
  Timeline mine_;
  std::string path_;      // what rank 0 was given; "" without a timeline, or when this rank's part is closed
  int64_t epoch_ns_ = 0;  // TimelineStart's; it tells one timeline's messages from another's

  // Rank 0.
  Done done_;                      // set while it ends
  std::set<int> answered_, gone_;  // who has closed its part; who has ended its session
};

}  // namespace smddp
