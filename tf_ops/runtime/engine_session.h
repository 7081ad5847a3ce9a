// Session over an Engine: turns requests into announcements and tasks.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/session.h"

namespace smddp {

class EngineSession : public Session {
 public:
  // `plans` outlives it. `on_failure` is told, on the engine thread, why the session failed.
  EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& plans,
                Engine::FailureCallback on_failure = nullptr);
  void Stop(bool at_exit = false);  // as Engine::Stop
  int64_t turns() const { return engine_.turns(); }
  // Ends it with an error, here and on its other ranks. Any thread.
  void Fail(const Status& why);
  const RailChoice& rail() const { return engine_.fabric().rail; }

  const Topology& topology() const override { return engine_.topology(); }
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
  bool OthersHeard() const override { return engine_.last_words().heard() >= topology().size() - 1; }
  void TellShown() override;
  std::string RaisedElsewhere() const override { return engine_.last_words().raised_elsewhere(); }
  bool ShownElsewhere() const override { return engine_.last_words().shown_elsewhere(); }
  SessionStats Stats() const override { return engine_.Stats(); }
  std::string RailAlgorithm(int64_t elements, DType dtype) const override {
    return RailAlgorithmFor(engine_.fabric(), elements, dtype, /*places_vary=*/false).info().name;
  }
  void TraceStart() override { engine_.trace().Start(); }
  std::vector<TraceEvent> TraceStop() override { return engine_.trace().Stop(); }
  Status StartTimeline(const std::string& path, bool mark_cycles) override;
  Status StopTimeline() override;

 private:
  void SubmitNamed(NamedRequest request);
  // What there is to check of a call; null without SMDDP_VERIFY.
  std::shared_ptr<const VerifiedCall> Described(const Announcement& announcement,
                                                const std::vector<TensorRef>& tensors);
  void SubmitReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done);
  // The same of tensors on a GPU, through host memory.
  void StageReduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done);
  void FinishTimeline(bool leaving);

  PlanRegistry& plans_;
  Engine engine_;
  std::mutex timeline_mutex_;    // held while one is started or ended
  bool timeline_asked_ = false;  // on this rank
};

}  // namespace smddp
