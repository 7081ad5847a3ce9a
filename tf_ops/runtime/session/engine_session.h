// A session: an engine and its components.
//
// Threads: as in session.h; components run on the engine thread.
#pragma once

#include <memory>
#include <string>

#include "core/env/env.h"
#include "runtime/api/session.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/control/running_tasks.h"
#include "runtime/engine/engine.h"
#include "runtime/plans/plan_table.h"
#include "runtime/session/engine_diagnostics.h"
#include "runtime/session/session_components.h"

namespace smddp {

class EngineSession : public Session {
 public:
  // `registry` outlives it. `on_failure` is called on the engine thread with the reason why the session failed.
  EngineSession(std::unique_ptr<FabricParts> parts, const Env& env, PlanRegistry& registry,
                Engine::FailureCallback on_failure = nullptr);
  ~EngineSession() override { engine_.Stop(); }
  void Stop(bool at_exit = false);  // as Engine::Stop
  // Increases as long as the engine is not stuck in a call. Any thread.
  int64_t turns() const { return engine_.pace().rounds(); }
  // Ends the session with an error, here and on the other ranks. Any thread.
  void Fail(const Status& why);

  const Topology& topology() const override { return parts_->fabric().topology; }
  Result<int> RegisterPlan(const PlanSpec& spec) override;
  Result<int> PlaceInParts(int rank, int parts) override;
  void ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) override;
  void Submit(Request request, DoneCallback done) override;
  void Join(int* last, DoneCallback done) override;
  void Cancel(const std::string& name) override;
  void CancelPlanned(const PlannedTensor& where) override;
  void BeginPlanned(const PlannedTensor& where) override;
  void Begin(const std::string& name) override;
  SessionDiagnostics& diagnostics() override { return diagnostics_; }

 private:
  // Engine thread.
  void ReduceNow(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);

  // An error where the engine has stopped.
  void SubmitWork(std::function<void()> work, const DoneCallback& done);
  // A reduction of tensors on a GPU, through host memory.
  void RoundTrip(Request request, DoneCallback done);

  PlanRegistry& registry_;
  const std::unique_ptr<FabricParts> parts_;
  RunningTasks tasks_;
  Engine engine_;
  SessionComponents components_;
  EngineDiagnostics diagnostics_;
  bool stopped_ = false;  // by the owner's thread
};

}  // namespace smddp
