// The components of a session's engine, in the order of their dependencies, and the messages that each receives.
//
// Threads: as each component says; made and destroyed while the engine thread does not run.
#pragma once

#include <utility>

#include "core/env/env.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/control/join_rounds.h"
#include "runtime/control/running_tasks.h"
#include "runtime/engine/engine.h"
#include "runtime/gpu/device_paths.h"
#include "runtime/gpu/host_round_trips.h"
#include "runtime/health/cancel_watch.h"
#include "runtime/health/exception_notice.h"
#include "runtime/health/stall_watch.h"
#include "runtime/join/join_protocol.h"
#include "runtime/named/coordination.h"
#include "runtime/named/given_up_requests.h"
#include "runtime/named/named_matching.h"
#include "runtime/plans/given_up_steps.h"
#include "runtime/plans/plan_retirement.h"
#include "runtime/plans/plan_table.h"
#include "runtime/plans/planned_reductions.h"
#include "runtime/requests/request_builder.h"
#include "runtime/timeline/timeline_group.h"
#include "runtime/verify/verify.h"

namespace smddp {

// How much is reduced together of what was not asked for together (named/fusion_queue.h). 0 where sums would not be the
// same in every run, or calls are checked one by one.
inline int64_t FusedBytes(const Fabric& fabric, const Env& env) {
  if (env.verify || SumsDependOnPlace(fabric)) return 0;
  return env.bucket_bytes != kAutoBytes ? env.bucket_bytes : DefaultBucketBytes(fabric.topology.node_count());
}

// The engine's components. Later ones depend on earlier ones.
struct SessionComponents {
  SessionComponents(Engine& engine, FabricParts& parts, RunningTasks& tasks, const Env& env,
                    const PlanRegistry& registry, PlanRetirement::Resume resume)
      : verifier(parts.fabric(), env.verify),
        requests(parts.fabric(), verifier),
        rounds(parts.fabric().topology.size()),
        round_trips(engine, [this] { return device_paths.MayAllocate(); }),
        coordination(engine, parts.fabric().compute, rounds, FusedBytes(parts.fabric(), env),
                     static_cast<size_t>(env.cache_capacity)),
        named(engine, rounds, requests, coordination),
        given_up_requests(engine, rounds, named, coordination),
        device_paths(engine, parts.fabric(), coordination, TheDevices(), env),
        planned(engine, parts.fabric(), env, registry, named, device_paths, verifier),
        given_up_steps(engine, planned),
        retirement(engine, planned, device_paths, coordination.coordinator(), rounds, std::move(resume)),
        join(engine, rounds, coordination, named, given_up_requests, requests, planned, given_up_steps),
        timeline(engine),
        exception_notice(engine),
        stalls(engine, env, tasks, coordination, named, planned, join),
        cancelled(engine, stalls.report()) {
    coordination.SetReader(&named);
    named.SetReaders(&device_paths, &join);
    engine.Add(&device_paths);
    engine.Add(&round_trips);
    engine.Add(&coordination, {ControlType::kAnnouncement, ControlType::kRequestGivenUp});
    engine.Add(&named, {ControlType::kVerdict});
    engine.Add(&given_up_requests);
    engine.Add(&planned, {ControlType::kPlanOrder});
    engine.Add(&given_up_steps, {ControlType::kStepGivenUp});
    engine.Add(&retirement, {ControlType::kPlanRetirement});
    engine.Add(&join, {ControlType::kJoinNotice, ControlType::kJoinOver});
    engine.Add(&timeline, {ControlType::kTimeline});
    engine.Add(&exception_notice, {ControlType::kExceptionNotice}, MessageRouter::Delivery::kAlways);
    engine.Add(&stalls, {ControlType::kStall}, MessageRouter::Delivery::kAlways);
    engine.Add(&cancelled);
  }

  const Verifier verifier;
  const RequestBuilder requests;
  JoinRounds rounds;
  HostRoundTrips round_trips;
  Coordination coordination;
  NamedMatching named;
  GivenUpRequests given_up_requests;
  DevicePaths device_paths;
  PlannedReductions planned;
  GivenUpSteps given_up_steps;
  PlanRetirement retirement;
  JoinProtocol join;
  TimelineGroup timeline;
  ExceptionNotice exception_notice;
  StallWatch stalls;
  CancelWatch cancelled;
};

}  // namespace smddp
