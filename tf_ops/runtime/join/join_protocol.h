// hvd.join (docs/decisions/0012-join.md): a rank that has joined contributes zeros to the reductions of the others
// until all have joined. Rank 0 decides when a round is over: when all ranks have joined it and none of their earlier
// requests is under way.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/join_rounds.h"
#include "runtime/control/messages.h"
#include "runtime/named/given_up_requests.h"
#include "runtime/named/named_matching.h"
#include "runtime/plans/given_up_steps.h"
#include "runtime/plans/planned_reductions.h"
#include "runtime/requests/request_builder.h"

namespace smddp {

class JoinProtocol : public Component, public VerdictReader {
 public:
  // All outlive it.
  JoinProtocol(ControlBus& bus, JoinRounds& rounds, Coordination& coordination, const NamedMatching& named,
               GivenUpRequests& given_up_requests, const RequestBuilder& requests, PlannedReductions& planned,
               GivenUpSteps& given_up_steps)
      : bus_(bus),
        rounds_(rounds),
        coordination_(coordination),
        named_(named),
        given_up_requests_(given_up_requests),
        requests_(requests),
        planned_(planned),
        given_up_steps_(given_up_steps) {}

  // This rank has no more data. `done` is called when the round is over, after `*last` was set.
  void Join(int* last, DoneCallback done);
  // Requests that are made while this rank waits for the end of the round belong to the next one: they run then.
  template <class Request>
  void RunOrHold(Request request) {
    if (!waiting()) return request();
    held_.push_back(std::move(request));
  }
  // A step of the plan of `where` has begun on this rank: ranks that have joined take part in it.
  void OnStepBegun(const PlannedTensor& where);

  void OnVerdict(const Verdict& verdict) override;
  Status OnMessage(int from, std::string_view message) override;
  void Step() override;
  Status AfterDeparture(int rank, const std::string& who) override;
  void OnFailure(const Status& why) override { End(why); }
  bool expecting() const override { return waiting(); }
  bool waiting() const override { return call_.done != nullptr; }
  int64_t OldestNs() const override { return waiting() ? call_.since_ns : kNever; }
  void Describe(std::vector<std::string>* under_way) const override {
    if (waiting()) under_way->emplace_back("hvd.join");
  }

 private:
  // This rank's call of Join.
  struct Call {
    DoneCallback done;  // null: none
    int* last = nullptr;
    int64_t since_ns = 0;
    bool ending = false;   // all ranks have joined; what they have under way continues
    bool drained = false;  // rank 0 has been notified
  };

  void OnNotice(int from, const JoinNotice& notice);
  std::optional<JoinOver> Decide(int from, const JoinNotice& notice);
  Status OnOver(const JoinOver& over);
  // Is none of the requests that this rank made before it joined under way any more?
  bool Drained() const { return named_.own() == 0 && planned_.matcher().drained(); }
  // An error of the session where the rank's parts are missing.
  void Tell(const JoinNotice& notice, int joined);
  void TellStepsBeyond(const StepCounts& known, int to);
  void ContributeZeros(const StepCounts& counts);
  void End(const Status& status);

  ControlBus& bus_;
  JoinRounds& rounds_;
  Coordination& coordination_;
  const NamedMatching& named_;
  GivenUpRequests& given_up_requests_;
  const RequestBuilder& requests_;
  PlannedReductions& planned_;
  GivenUpSteps& given_up_steps_;

  Call call_;
  std::vector<std::function<void()>> held_;
  StepCounts wanted_;       // of plans whose verdict has not arrived
  int64_t zero_tasks_ = 0;  // allreduces of the other ranks, with zeros from this one

  // On rank 0: the end of the current round.
  JoinOver next_;
  int joined_ranks_ = 0, drained_ranks_ = 0;
};

}  // namespace smddp
