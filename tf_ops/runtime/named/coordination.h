// This rank's part in what the coordinators of names decide: sends announcements to their coordinators, and, where it
// is one itself, the verdicts to the ranks (coordinator.h).
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/messages.h"
#include "runtime/named/coordinator.h"
#include "runtime/named/fusion_queue.h"

namespace smddp {

class VerdictReader {
 public:
  virtual ~VerdictReader() = default;
  virtual void OnVerdict(const Verdict& verdict) = 0;
};

class Coordination : public Component {
 public:
  // All outlive it. Allreduces of up to `fused_bytes` in all are put together; 0: none. `most_numbers`: as
  // Coordinator.
  Coordination(ControlBus& bus, const Compute& compute, const JoinRounds& rounds, int64_t fused_bytes,
               size_t most_numbers)
      : bus_(bus), coordinator_(bus.topology(), compute, rounds, most_numbers), complete_(fused_bytes) {}
  // Call it before the engine starts. `reader` gets the verdicts that this rank sends to itself, as they are sent.
  void SetReader(VerdictReader* reader) { reader_ = reader; }

  // To the coordinator of its name, which may be this rank. The verdict arrives where the messages of that type do.
  void Announce(Announcement announcement);
  void GiveUp(const RequestGivenUp& given_up);

  Coordinator& coordinator() { return coordinator_; }
  // A rank has joined: answers the requests that waited only for it.
  void OnJoin();
  // Sends the coordinator's errors to the ranks that have announced.
  void Answer(const std::vector<Coordinator::Expired>& expired);
  // A request whose verdict `is_limited` has ended on this rank.
  void OnEnded() { complete_.Ended(); }

  Status OnMessage(int from, std::string_view message) override;
  void Step() override;
  Status AfterDeparture(int rank, const std::string& who) override;
  void OnFailure(const Status&) override { complete_.Clear(); }

 private:
  void OnAnnouncement(int from, Announcement announcement);
  void OnGivenUp(int from, const RequestGivenUp& given_up);
  void Decide(Verdict verdict);
  void Send(const Verdict& verdict, const std::vector<int>& to);

  ControlBus& bus_;
  Coordinator coordinator_;
  FusionQueue complete_;  // verdicts of this coordinator, to be sent
  VerdictReader* reader_ = nullptr;
};

}  // namespace smddp
