#include "runtime/session/session_components.h"

#include <memory>
#include <utility>

#include "runtime/named/session_tasks.h"

namespace smddp {

SessionComponents::SessionComponents(Engine& engine, FabricParts& parts, RunningTasks& tasks, const Env& env,
                                     const PlanRegistry& registry, PlanRetirement::Resume resume)
    : verifier(parts.fabric(), env.verify),
      rounds(parts.fabric().topology.size()),
      devices(parts.fabric(), TheDevices(), env.gpu_stage, env.gpu_direct),
      round_trips(engine),
      named(engine, parts.fabric().compute, rounds),
      device_paths(engine, parts.fabric(), named, devices),
      planned(engine, parts.fabric(), env, registry, named, device_paths, verifier),
      given_up(engine, planned),
      retirement(engine, planned, device_paths, named.coordinator(), rounds, std::move(resume)),
      join(engine, rounds, named, planned, given_up,
           [this, &parts](const Verdict& verdict, ZeroMemory& zeros, std::shared_ptr<void>* keep) {
             return BeginAllreduceOfZeros(parts.fabric(), verifier, verdict, zeros, keep);
           }),
      timeline(engine),
      exception_notice(engine),
      stalls(engine, env, tasks, named, planned, join),
      cancelled(engine, stalls.report()) {
  named.SetReaders(&device_paths, &join);
  engine.Add(&devices);
  engine.Add(&round_trips);
  engine.Add(&named, {ControlType::kAnnouncement, ControlType::kVerdict, ControlType::kRequestGivenUp});
  engine.Add(&device_paths);
  engine.Add(&planned, {ControlType::kPlanOrder});
  engine.Add(&given_up, {ControlType::kStepGivenUp});
  engine.Add(&retirement, {ControlType::kPlanRetirement});
  engine.Add(&join, {ControlType::kJoinNotice, ControlType::kJoinOver});
  engine.Add(&timeline, {ControlType::kTimeline});
  engine.Add(&exception_notice, {ControlType::kExceptionNotice}, ComponentTable::Delivery::kAlways);
  engine.Add(&stalls, {ControlType::kStall}, ComponentTable::Delivery::kAlways);
  engine.Add(&cancelled);
}

}  // namespace smddp
