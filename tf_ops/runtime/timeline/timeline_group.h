// The timelines of all ranks, each in its own file. Rank 0 decides when they begin and end. It writes into the file
// that the user named, the others beside that path, each on its own host (`FILE.rankN.part`). At the end each rank
// closes its part and answers. smddp_tf/timeline.py merges the files.
//
// Times are rank 0's: ranks of its node read the same clock. For other nodes CLOCK_REALTIME is assumed to agree with
// that of rank 0's node when the timeline begins.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

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

  // Called while no timeline is under way. On rank 0: all ranks begin. On other ranks: begins to record, for the file
  // that rank 0 announces before or after.
  Status Start(const std::string& path, bool mark_cycles);
  // On rank 0: all ranks end; `done` is called when each of the others has answered or left, or by GiveUp. On other
  // ranks: drops what was recorded for a file that rank 0 has not announced, closes this rank's part if it is
  // `leaving`, and calls `done`.
  void Stop(bool leaving, Done done);
  // Stops waiting for ranks that have not answered.
  void GiveUp() { EndWhenAnswered(/*give_up=*/true); }

  Status OnMessage(int from, std::string_view bytes) override;
  void OnDeparture(int rank) override;
  // The files are closed and kept.
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
  std::string path_;      // rank 0's path; "" when there is no timeline, or when this rank's part is closed
  int64_t epoch_ns_ = 0;  // TimelineStart's; it identifies the timeline in messages

  // On rank 0.
  Done done_;                      // set while the timeline ends
  std::set<int> answered_, gone_;  // ranks that have closed their parts; ranks that have ended their sessions
};

}  // namespace smddp
