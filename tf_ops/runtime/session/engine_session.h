// A session: an engine and its components.
//
// Threads: as in session.h; components run on the engine thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/env/env.h"
#include "runtime/api/session.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/control/join_rounds.h"
#include "runtime/control/running_tasks.h"
#include "runtime/engine/engine.h"
#include "runtime/gpu/device_paths.h"
#include "runtime/gpu/host_round_trips.h"
#include "runtime/gpu/session_devices.h"
#include "runtime/health/cancel_watch.h"
#include "runtime/health/exception_notice.h"
#include "runtime/health/stall_watch.h"
#include "runtime/join/join_protocol.h"
#include "runtime/named/named_matching.h"
#include "runtime/named/request_builder.h"
#include "runtime/planned/given_up_steps.h"
#include "runtime/planned/plan_retirement.h"
#include "runtime/planned/planned_reductions.h"
#include "runtime/plans/plan_registry.h"
#include "runtime/timeline/timeline_group.h"
#include "runtime/verify/verify.h"

namespace smddp {

// The engine's components. Later ones depend on earlier ones.
struct SessionComponents {
  SessionComponents(Engine& engine, FabricParts& parts, RunningTasks& tasks, const Env& env,
                    const PlanRegistry& registry, PlanRetirement::Resume resume);

  const Verifier verifier;
  JoinRounds rounds;
  SessionDevices devices;
  HostRoundTrips round_trips;
  NamedMatching named;
  DevicePaths device_paths;
  PlannedReductions planned;
  GivenUpSteps given_up;
  PlanRetirement retirement;
  JoinProtocol join;
  TimelineGroup timeline;
  ExceptionNotice exception_notice;
  StallWatch stalls;
  CancelWatch cancelled;
};

class EngineSession : public Session {
 public:
  // `registry` outlives it. `on_failure` is called on the engine thread with the reason why the session failed.
  EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& registry,
                Engine::FailureCallback on_failure = nullptr);
  ~EngineSession() override;
  void Stop(bool at_exit = false);  // as Engine::Stop
  // Increases as long as the engine is not stuck in a call. Any thread.
  int64_t turns() const { return engine_.pace().rounds(); }
  // Ends the session with an error, here and on the other ranks. Any thread.
  void Fail(const Status& why);
  const RailChoice& rail() const { return parts_->fabric().rail; }

  const Topology& topology() const override { return parts_->fabric().topology; }
  Result<int> RegisterPlan(const PlanSpec& spec) override;
  void ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) override;
  void Allreduce(AllreduceRequest request, DoneCallback done) override;
  void Broadcast(BroadcastRequest request, DoneCallback done) override;
  void Allgather(AllgatherRequest request, DoneCallback done) override;
  void Alltoall(AlltoallRequest request, DoneCallback done) override;
  void Reducescatter(AllreduceRequest request, DoneCallback done) override;
  void Barrier(BarrierRequest request, DoneCallback done) override;
  void Join(int* last, DoneCallback done) override;
  void Cancel(const std::string& name) override;
  void CancelPlanned(const PlannedTensor& where) override;
  void Raise(const std::string& exception) override;
  void TellTracebackPrinted() override;
  RaisedState Raised() const override;
  SessionStats Stats() const override;
  std::string RailAlgorithm(int64_t elements, DType dtype) const override {
    return RailAlgorithmFor(parts_->fabric(), elements, dtype, /*places_vary=*/false).info().name;
  }
  void TraceStart() override { engine_.trace().Start(); }
  std::vector<TraceEvent> TraceStop() override { return engine_.trace().Stop(); }
  Status StartTimeline(const std::string& path, bool mark_cycles) override;
  TimelineParts StopTimeline() override;

 private:
  // Engine thread.
  void ReduceNow(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);
  void SubmitNow(NamedRequest request);
  void JoinNow(int* last, DoneCallback done);

  void Submit(NamedRequest request);
  void SubmitReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done);
  // The same for tensors on a GPU, through host memory.
  void ReduceOnHost(RequestKind kind, const AllreduceRequest& request, DoneCallback done);
  TimelineParts FinishTimeline(bool leaving);

  PlanRegistry& registry_;
  const std::unique_ptr<FabricParts> parts_;
  RunningTasks tasks_;
  Engine engine_;
  SessionComponents components_;
  RequestBuilder builder_;
  std::mutex timeline_mutex_;    // held while a timeline is started or ended
  bool timeline_asked_ = false;  // on this rank
  bool stopped_ = false;         // by the owner's thread
};

}  // namespace smddp
