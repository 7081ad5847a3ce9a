// Named matching: requests that all ranks make under one name. Each rank announces its request to the name's
// coordinator (named/coordinator.h), whose verdict starts it on every rank.
//
// A request whose step is cancelled before the other ranks have announced theirs is answered at once; the other ranks
// get an error when they do. Otherwise it would be reduced with the data of their next step.
//
// Threads: the engine's, except for `done`, any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/join_rounds.h"
#include "runtime/control/messages.h"
#include "runtime/named/coordinator.h"
#include "runtime/named/fusion_queue.h"
#include "runtime/requests/named_request.h"
#include "runtime/requests/request_builder.h"

namespace smddp {

// Handles verdicts on requests that this rank's program has not made.
class VerdictReader {
 public:
  virtual ~VerdictReader() = default;
  virtual void OnVerdict(const Verdict& verdict) = 0;
};

class NamedMatching : public Component {
 public:
  // All outlive it. Allreduces of up to `fused_bytes` in all are put together; 0: none. `most_numbers`: as
  // Coordinator.
  NamedMatching(ControlBus& bus, const Compute& compute, const JoinRounds& rounds, const RequestBuilder& requests,
                int64_t fused_bytes, size_t most_numbers)
      : bus_(bus),
        rounds_(rounds),
        requests_(requests),
        coordinator_(bus.topology(), compute, rounds, most_numbers),
        complete_(fused_bytes) {}
  // Call it before the engine starts. The readers handle verdicts on kDevices, and verdicts on requests in which this
  // rank takes part because it has joined.
  void SetReaders(VerdictReader* of_devices, VerdictReader* as_joined) {
    of_devices_ = of_devices;
    as_joined_ = as_joined;
  }

  void Submit(NamedRequest request);
  // Announces a request that the program has not made; its verdict goes to a reader.
  void Announce(Announcement announcement);
  // A run begins that brings request `name`. Gives up the request of the previous run if that has not brought it.
  void BeginRun(const std::string& name);
  // The same for all requests of runs that have begun: no other run follows.
  void GiveUpExpected();
  // The step that holds request `name` was cancelled.
  void Cancel(const std::string& name);
  // A rank has joined: answers the requests that waited only for it.
  void OnJoin();

  Coordinator& coordinator() { return coordinator_; }
  // Sends the coordinator's errors to the ranks that have announced.
  void Answer(const std::vector<Coordinator::Expired>& expired);
  // The oldest waiting request, plans excluded; null when there is none.
  const NamedRequest* Oldest() const;
  // This rank's requests without an answer, plans excluded.
  int64_t own() const { return own_; }
  int64_t done() const { return done_; }  // any thread

  Status OnMessage(int from, std::string_view message) override;
  void Step() override;
  void Tick(int64_t now_ns) override;
  Status AfterDeparture(int rank, const std::string& who) override;
  void OnFailure(const Status& why) override;
  bool expecting() const override { return waiting(); }
  // A plan that is not agreed on yet has no caller of its own.
  bool waiting() const override;
  int64_t OldestNs() const override { return Oldest() != nullptr ? Oldest()->submitted_ns : kNever; }
  void Describe(std::vector<std::string>* under_way) const override;

 private:
  void OnAnnouncement(int from, Announcement announcement);
  void OnVerdict(const Verdict& verdict);
  // The oldest request of that name that waits, if there is one.
  std::optional<NamedRequest> TakeWaiting(const RequestRef& request);
  // Gives the verdict the names that its coordinator has sent as numbers. False: there are no such numbers.
  bool ReadNames(int coordinator, Verdict* verdict);
  // All requests of the verdict as one. An error has been given to those that wait.
  Result<NamedRequest> Fuse(const Verdict& verdict, NamedRequest first);
  void Begin(const Verdict& verdict, NamedRequest request);
  void GiveUp(const RequestGivenUp& given_up);
  void OnGivenUp(int from, const RequestGivenUp& given_up);
  void Decide(Verdict verdict);
  void Send(const Verdict& verdict, const std::vector<int>& to);

  ControlBus& bus_;
  const JoinRounds& rounds_;
  const RequestBuilder& requests_;
  Coordinator coordinator_;
  ToldNumbers numbers_;
  FusionQueue complete_;                                     // verdicts of this coordinator, to be sent
  std::map<std::string, std::deque<NamedRequest>> waiting_;  // for their verdicts, by name, oldest first
  VerdictReader* of_devices_ = nullptr;
  VerdictReader* as_joined_ = nullptr;
  struct Cancelled {
    std::string name;
    int64_t when_ns = 0;
  };
  std::vector<Cancelled> cancelled_;  // to be reported to their coordinators
  std::set<std::string> expected_;    // that runs which have begun will bring
  int64_t own_ = 0;
  std::atomic<int64_t> done_{0};
};

}  // namespace smddp
