// All ranks' timelines as one file. Rank 0 decides: it tells the others when to begin and to end, and what it writes
// into is the file that the user named. The others write beside that path, each on its own host (`FILE.rankN.part`), or
// into memory where there is no such folder. At the end each sends its part to rank 0, piece by piece, one piece on its
// way at a time, and removes it. Of a job that ends badly the parts stay: `python -m smddp_tf.timeline merge FILE`.
//
// Times are rank 0's: ranks of its node read the same clock, others ask for the time and take the answer that came
// back soonest.
//
// Threads: the engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "core/status.h"
#include "runtime/timeline.h"
#include "topology/topology.h"

namespace smddp {

class TimelineGroup {
 public:
  using Post = std::function<void(int to, std::string message)>;
  TimelineGroup(const Topology& topology, Trace& trace, Post post)
      : topology_(topology), post_(std::move(post)), mine_(trace, topology.rank()) {}

  // Rank 0: all begin. Elsewhere: begins to record, for the file that rank 0 tells of before or after.
  Status Start(const std::string& path, bool mark_cycles);
  // Rank 0: all end, and `done` is called when their parts are here. Elsewhere: forgets what was recorded for a file
  // that rank 0 has not told of, and calls `done` at once.
  void Stop(std::function<void()> done);
  // This rank leaves. `done` is called when its part has been sent, on rank 0 when all have come.
  void Leave(std::function<void()> done);
  // What has not come will not. Returns those it would have come from.
  std::set<int> GiveUp();

  // False: it cannot be read.
  bool OnMessage(int from, std::string_view message);
  void OnDeparture(int rank);
  // Nothing can be sent any more.
  void OnFailure();

  // Parts so far, to see that something moves. Any thread.
  int64_t parts_moved() const { return parts_moved_; }

 private:
  struct Message;
  void Send(int to, const Message& message);
  void OnStart(const Message& message);
  void OnTime(const Message& message);
  void OnPart(int from, const Message& message);
  void AskTime();
  void OpenPart();
  void FinishPart();
  void SendPiece();
  void FinishAll();
  void Done();

  const Topology& topology_;
  const Post post_;
  Timeline mine_;
  uint32_t generation_ = 0;  // rank 0 counts its timelines; elsewhere: the one it told of
  std::function<void()> done_;
  std::atomic<int64_t> parts_moved_{0};

  // Rank 0.
  std::set<int> came_, gone_;
  bool stopping_ = false;

  // Other ranks.
  std::string path_;
  bool mark_cycles_ = false;
  int64_t zero_ns_ = 0;  // on rank 0's clock
  int asked_ = 0;
  int64_t best_round_ns_ = 0, offset_ns_ = 0;  // rank 0's clock minus mine
  bool stop_wanted_ = false, sending_ = false;
  int64_t sent_ = 0;
};

}  // namespace smddp
