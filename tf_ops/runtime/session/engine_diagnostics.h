// What a running engine reports about itself, for SessionDiagnostics.
//
// Threads: as in session_diagnostics.h.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "runtime/api/session_diagnostics.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/engine/engine.h"
#include "runtime/session/session_components.h"

namespace smddp {

class EngineDiagnostics : public SessionDiagnostics {
 public:
  // All outlive it.
  EngineDiagnostics(Engine& engine, FabricParts& parts, SessionComponents& components)
      : engine_(engine), parts_(parts), components_(components) {}

  void Raise(const std::string& exception) override;
  void TellTracebackPrinted() override;
  RaisedState Raised() const override { return components_.exception_notice.State(); }
  SessionStats Stats() const override;
  std::string RailAlgorithm(int64_t elements, DType dtype) const override {
    return RailAlgorithmFor(parts_.fabric(), elements, dtype, /*places_vary=*/false).name;
  }
  void TraceStart() override { engine_.trace().Start(); }
  std::vector<TraceEvent> TraceStop() override {
    std::vector<TraceEvent> events;
    engine_.trace().Stop();
    engine_.trace().Take(&events);
    return events;
  }
  Status StartTimeline(const std::string& path, bool mark_cycles) override;
  TimelineParts StopTimeline() override;
  // This rank leaves: its part of a timeline that runs is closed.
  void CloseTimeline();

 private:
  TimelineParts FinishTimeline(bool leaving);

  Engine& engine_;
  FabricParts& parts_;
  SessionComponents& components_;
  std::mutex timeline_mutex_;    // held while a timeline is started or ended
  bool timeline_asked_ = false;  // on this rank
};

}  // namespace smddp
