// Named matching: requests that all ranks make under one name. Each rank announces its request to the name's
// coordinator (coordination.h), whose verdict starts it on every rank.
//
// Threads: the engine's, except for `done`, any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/join_rounds.h"
#include "runtime/control/messages.h"
#include "runtime/named/coordination.h"
#include "runtime/named/request_numbers.h"
#include "runtime/requests/named_request.h"
#include "runtime/requests/request_builder.h"

namespace smddp {

class NamedMatching : public Component, public VerdictReader {
 public:
  // All outlive it.
  NamedMatching(ControlBus& bus, const JoinRounds& rounds, const RequestBuilder& requests, Coordination& coordination)
      : bus_(bus), rounds_(rounds), requests_(requests), coordination_(coordination) {}
  // Call it before the engine starts. The readers handle verdicts on kDevices, and verdicts on requests in which this
  // rank takes part because it has joined.
  void SetReaders(VerdictReader* of_devices, VerdictReader* as_joined) {
    of_devices_ = of_devices;
    as_joined_ = as_joined;
  }

  void Submit(NamedRequest request);
  // The oldest request of that name that waits for its verdict; null: none.
  const NamedRequest* Waiting(const std::string& name) const;
  // The oldest waiting request, plans excluded; null when there is none.
  const NamedRequest* Oldest() const;
  // This rank's requests without an answer, plans excluded.
  int64_t own() const { return own_; }
  int64_t done() const { return done_; }  // any thread

  Status OnMessage(int from, std::string_view message) override;
  void OnVerdict(const Verdict& verdict) override;
  Status AfterDeparture(int rank, const std::string& who) override;
  void OnFailure(const Status& why) override;
  bool expecting() const override { return waiting(); }
  // A plan that is not agreed on yet has no caller of its own.
  bool waiting() const override;
  int64_t OldestNs() const override { return Oldest() != nullptr ? Oldest()->submitted_ns : kNever; }
  void Describe(std::vector<std::string>* under_way) const override;

 private:
  void Apply(const Verdict& verdict);
  // The oldest request of that name that waits, if there is one.
  std::optional<NamedRequest> TakeWaiting(const RequestRef& request);
  // Gives the verdict the names that its coordinator has sent as numbers. False: there are no such numbers.
  bool ReadNames(int coordinator, Verdict* verdict);
  // All requests of the verdict as one. An error has been given to those that wait.
  Result<NamedRequest> Fuse(const Verdict& verdict, NamedRequest first);
  void Begin(const Verdict& verdict, NamedRequest request);

  ControlBus& bus_;
  const JoinRounds& rounds_;
  const RequestBuilder& requests_;
  Coordination& coordination_;
  ToldNumbers numbers_;
  std::map<std::string, std::deque<NamedRequest>> waiting_;  // for their verdicts, by name, oldest first
  VerdictReader* of_devices_ = nullptr;
  VerdictReader* as_joined_ = nullptr;
  int64_t own_ = 0;
  std::atomic<int64_t> done_{0};
};

}  // namespace smddp
