#include "runtime/session/engine_diagnostics.h"

#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace smddp {
namespace {

// The time limit for other ranks to close their parts of the timeline.
constexpr std::chrono::seconds kTimelinePatience(10);

}  // namespace

SessionStats EngineDiagnostics::Stats() const {
  SessionStats stats;
  stats.planned_buckets = components_.planned.matcher().buckets_done();
  stats.named_requests = components_.named.done();
  const StepTimes& times = components_.planned.matcher().times();
  stats.steps = times.steps();
  stats.reducing_ns = times.reducing_ns();
  stats.exposed_ns = times.exposed_ns();
  stats.plans = components_.planned.plans().known();
  stats.node_bytes_sent = parts_.node().bytes_published();
  stats.node_bytes_referred = parts_.node().bytes_referred();
  stats.rail_bytes_sent = parts_.rail_bytes();
  stats.control_messages = engine_.router().messages();
  stats.control_bytes = engine_.router().bytes();
  stats.ended_rank = engine_.router().ended_rank();
  stats.arena_bytes = static_cast<int64_t>(parts_.arena_bytes());
  if (parts_.fabric().topology.node_count() > 1) {
    stats.rail_latency_us = parts_.fabric().rail.link.latency_s * 1e6;
    stats.rail_bandwidth_mbps = parts_.fabric().rail.link.bytes_per_s * 8e-6;
  }
  return stats;
}

// --- Exceptions that nobody caught ---

void EngineDiagnostics::Raise(const std::string& exception) {
  engine_.Submit([this, exception] { components_.exception_notice.Raise(exception); });
}

void EngineDiagnostics::TellTracebackPrinted() {
  engine_.Submit([this] { components_.exception_notice.TracebackPrinted(); });
}

// --- Timeline ---

Status EngineDiagnostics::StartTimeline(const std::string& path, bool mark_cycles) {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  if (timeline_asked_) {
    return Status(Reason::kBadArgument,
                  "A timeline has been started already (by hvd.start_timeline or SMDDP_TIMELINE). Call "
                  "hvd.stop_timeline() first. Received: '",
                  path, "'.");
  }
  auto started = std::make_shared<std::promise<Status>>();
  auto answer = started->get_future();  // returns soon: the engine asks no other rank
  auto work = [this, started, path, mark_cycles] {
    const Status& failure = engine_.failure();
    started->set_value(failure.ok() ? components_.timeline.Start(path, mark_cycles) : failure);
  };
  if (!engine_.Submit(std::move(work))) return NotInitialized();
  const Status status = answer.get();
  timeline_asked_ = status.ok();
  return status;
}

TimelineParts EngineDiagnostics::StopTimeline() {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  timeline_asked_ = false;
  return FinishTimeline(/*leaving=*/false);
}

void EngineDiagnostics::CloseTimeline() {
  std::lock_guard<std::mutex> lock(timeline_mutex_);
  (void)FinishTimeline(/*leaving=*/true);
}

TimelineParts EngineDiagnostics::FinishTimeline(bool leaving) {
  const auto finished = std::make_shared<std::promise<TimelineParts>>();
  auto answer = finished->get_future();
  const bool asked = engine_.Submit([this, finished, leaving] {
    components_.timeline.Stop(leaving, [finished](TimelineParts parts) { finished->set_value(std::move(parts)); });
  });
  if (!asked) return {};
  if (answer.wait_for(kTimelinePatience) != std::future_status::ready) {
    (void)engine_.Submit([this] { components_.timeline.GiveUp(); });
  }
  return answer.wait_for(kTimelinePatience) == std::future_status::ready ? answer.get() : TimelineParts();
}

}  // namespace smddp
