#include "runtime/engine.h"

#include "core/clock.h"
#include "core/hand_over.h"
#include "core/log.h"

namespace smddp {
namespace {

constexpr int64_t kWatchEveryNs = 200 * 1000000LL;
// While somebody waits, a death must be seen before the launcher ends the survivors.
constexpr int64_t kLookEveryNs = 5 * 1000000LL;
// Rounds without progress after which slots that others wait for are copied out of their way.
constexpr int kEvacuateAfterRounds = 64;
constexpr int64_t kEvacuateAfterNs = 1000000;  // rounds are long where cores are few

Backoff MakeBackoff(FabricParts& parts) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return Backoff(parts.node().doorbell(), CoresFor(parts.fabric().topology.local_size(), cores),
                 /*polled=*/!parts.world().rings_doorbell());
}

}  // namespace

Engine::Engine(std::unique_ptr<FabricParts> parts, const Env& env, const PlanRegistry& plans,
               ZeroAllreduce zero_allreduce, FailureCallback on_failure)
    : parts_(std::move(parts)),
      env_(env),
      registry_(plans),
      zero_allreduce_(std::move(zero_allreduce)),
      on_failure_(std::move(on_failure)),
      backoff_(MakeBackoff(*parts_)),
      heartbeat_(parts_->fabric().topology, env.heartbeat_timeout_s),
      verifier_(parts_->fabric(), env),
      join_(parts_->fabric().topology.size()),
      coordinator_(parts_->fabric().topology, parts_->fabric().compute, join_),
      devices_(parts_->fabric(), TheDevices(), env.gpu_stage, env.gpu_direct),
      plans_(
          parts_->fabric(),
          PlanOptions{env.bucket_bytes, env.gradient_order == "observed", env.autotune, env.autotune_log},
          [this](RunningTask task) { Run(std::move(task)); },
          [this](const PlanOrder& order) { PostToOthers(Encode(order)); }, trace_, verifier_, devices_,
          [this](const std::string& name, const Result<std::string>& card) { AskForCards(name, card); }),
      retirement_(
          parts_->fabric().topology, plans_, coordinator_,
          [this](int to, std::string message) { Post(to, std::move(message)); },
          [this](PlanTable::Kept kept) { ReducePlanned(kept.where, kept.tensor, std::move(kept.done)); }),
      timeline_(parts_->fabric().topology, trace_,
                [this](int to, std::string message) { Post(to, std::move(message)); }),
      last_words_(
          parts_->fabric().topology, [this](int to, std::string message) { Post(to, std::move(message)); },
          [this](const Status& why) { Fail(why, /*tell_others=*/false); }),
      stalls_(
          parts_->fabric().topology, [this](int to, std::string message) { Post(to, std::move(message)); },
          [this] { return Here(); }) {}

void Engine::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Engine::Stop(bool at_exit) {
  at_exit_ = at_exit;
  stopping_ = true;
  parts_->node().doorbell().Ring();
  if (thread_.joinable()) thread_.join();
}

bool Engine::Submit(std::function<void()> work) {
  if (!inbox_.Push(std::move(work))) return false;
  parts_->node().doorbell().Ring();
  return true;
}

void Engine::Loop() {
  while (true) {
    const uint32_t seen = parts_->node().doorbell().rings.load(std::memory_order_seq_cst);
    HandOver();
    const bool stopping = stopping_;
    turns_.fetch_add(1, std::memory_order_relaxed);
    bool worked = DrainInbox();
    const Result<bool> progress = parts_->world().Progress();
    if (!progress.ok()) Fail(OfTransport(progress.status()), /*tell_others=*/true);
    const bool heard = ReadControl(&worked);
    worked |= StepTasks();
    const bool moved = worked || (progress.ok() && *progress);
    StepDevices();
    StepJoin();
    if (stopping) break;
    const int64_t now_ns = NowNs();
    const bool watch = now_ns - last_watch_ns_ > kWatchEveryNs;
    // At most once between two looks at the control messages: who is suspected may have said goodbye.
    if (watch || (expecting() && now_ns - last_look_ns_ > kLookEveryNs)) WatchPeers();
    if (watch) {
      last_watch_ns_ = now_ns;
      WatchStalls();
      WatchDepartures();
      GiveUpBrokenSteps(now_ns);
      if (failed_.ok()) GiveUpRequests(now_ns);
      WatchCancelled();
    }
    if (moved) last_moved_ns_ = now_ns;
    if (worked) last_worked_ns_ = now_ns;
    if (moved || heard) {
      idle_rounds_ = 0;
      backoff_.Reset();
    } else if (MayEvacuate(now_ns) && parts_->node().Evacuate()) {
      backoff_.Reset();
    } else {
      wakeups_.fetch_add(1, std::memory_order_relaxed);
      backoff_.Wait(seen, expecting(), now_ns - last_moved_ns_, devices_.busy());
    }
  }
  Leave();
}

bool Engine::MayEvacuate(int64_t now_ns) {
  return !expecting() || ++idle_rounds_ % kEvacuateAfterRounds == 0 || now_ns - last_moved_ns_ > kEvacuateAfterNs;
}

bool Engine::DrainInbox() {
  std::vector<std::function<void()>> work;
  if (!inbox_.TakeAll(&work)) return false;
  for (auto& item : work) item();
  return true;
}

// --- Tasks ---

void Engine::Run(RunningTask task) {
  if (tasks_.empty()) trace_.Record("cycle_start", task.name, 0);
  task.since_ns = NowNs();
  tasks_.push_back(std::move(task));
}

bool Engine::StepTasks() {
  bool moved = false;
  for (auto at = tasks_.begin(); at != tasks_.end();) {
    const Result<Progress> progress = at->task != nullptr ? at->task->Step() : Progress::kDone;
    if (!progress.ok()) {
      Fail(OfTransport(progress.status()), /*tell_others=*/true);
      return true;
    }
    moved |= *progress != Progress::kWaiting;
    if (*progress != Progress::kDone) {
      ++at;
      continue;
    }
    RunningTask finished = std::move(*at);
    at = tasks_.erase(at);
    finished.task.reset();
    if (!finished.is_plan) {
      last_done_ = std::move(finished.name);
      last_done_ns_ = NowNs();
    }
    node_bytes_ = parts_->node().bytes_published();  // before the caller can ask
    rail_bytes_ = parts_->rail_bytes();
    finished.done(Status::Ok());
    if (!failed_.ok()) return true;  // what it told the other ranks could not be sent: the tasks are gone
  }
  return moved;
}

void Engine::StepDevices() {
  if (!devices_.opening()) return;
  const Status status = plans_.StepDevices();
  if (!status.ok()) Fail(status, /*tell_others=*/true);
}

Status Engine::StartTimeline(const std::string& path, bool mark_cycles) {
  if (!failed_.ok()) return failed_;
  return timeline_.Start(path, mark_cycles);
}

// --- Control messages ---

void Engine::Post(int to, std::string message) {
  if (departed_.count(to) != 0) return;
  const Status status = parts_->world().Post(to, std::move(message));
  if (!status.ok()) Fail(status, /*tell_others=*/true);  // once: Fail sets `failed_` before it posts
}

void Engine::PostToOthers(const std::string& message) {
  for (int rank : topology().world().world_ranks()) {
    if (rank != topology().rank()) Post(rank, message);
  }
}

bool Engine::ReadControl(bool* moved) {
  Message message;
  bool heard = false;
  while (parts_->world().Poll(&message)) {
    heard = true;
    *moved |= BelongsToWork(message.bytes);
    const Status status = OnControl(message);
    if (!status.ok()) Fail(status, /*tell_others=*/true);
  }
  return heard;
}

namespace {

Status Refused(int rank, const char* what) {
  return Status(Code::kInternal,
                "Rank " + std::to_string(rank) + " " + what + ". Do all ranks run the same version of smddp_tf?");
}

}  // namespace

Status Engine::OnControl(const Message& message) {
  ControlType type;
  Announcement announcement;
  Verdict verdict;
  PlanOrder order;
  JoinNotice notice;
  JoinOver over;
  Status why;
  Goodbye goodbye;
  StepGivenUp given_up;
  RequestGivenUp request_given_up;
  const bool known = TypeOf(message.bytes, &type);
  const int known_as = topology().global_rank(message.from);
  heartbeat_.Heard(message.from, NowNs());
  if (leaving_ && known && type != ControlType::kGoodbye && type != ControlType::kAbort) return Status::Ok();
  if (known && type == ControlType::kBeat) return Status::Ok();
  if (known && type == ControlType::kAnnouncement && Decode(message.bytes, &announcement)) {
    if (failed_.ok()) OnAnnouncement(message.from, std::move(announcement));
  } else if (known && type == ControlType::kVerdict && Decode(message.bytes, &verdict)) {
    if (failed_.ok()) OnVerdict(verdict);
  } else if (known && type == ControlType::kPlanOrder && Decode(message.bytes, &order)) {
    if (message.from != 0) return Refused(known_as, "sent an order of gradients that cannot be");
    if (failed_.ok()) return plans_.Adopt(order);
  } else if (known && type == ControlType::kJoinNotice && Decode(message.bytes, &notice)) {
    if (failed_.ok()) OnJoinNotice(message.from, notice);
  } else if (known && type == ControlType::kJoinOver && Decode(message.bytes, &over)) {
    if (message.from != 0 || over.last >= topology().size()) {
      return Refused(known_as, "sent an end of hvd.join that cannot be");
    }
    if (failed_.ok()) OnJoinOver(over);
  } else if (known && type == ControlType::kStepGivenUp && Decode(message.bytes, &given_up)) {
    if (failed_.ok()) OnStepGivenUp(message.from, given_up);
  } else if (known && type == ControlType::kRequestGivenUp && Decode(message.bytes, &request_given_up)) {
    if (failed_.ok()) OnRequestGivenUp(message.from, request_given_up);
  } else if (known && type == ControlType::kPlanRetirement &&
             (!failed_.ok() || retirement_.OnMessage(message.from, message.bytes, !join_.anyone()))) {
    return Status::Ok();
  } else if (known && type == ControlType::kGoodbye && Decode(message.bytes, &goodbye)) {
    OnGoodbye(message.from, goodbye);
  } else if (known && type == ControlType::kTimeline &&
             (!failed_.ok() || timeline_.OnMessage(message.from, message.bytes))) {
    return Status::Ok();
  } else if (known && type == ControlType::kLastWords && last_words_.OnMessage(message.from, message.bytes)) {
    return Status::Ok();
  } else if (known && type == ControlType::kStall && stalls_.OnMessage(message.from, message.bytes, NowNs())) {
    return Status::Ok();
  } else if (known && type == ControlType::kAbort && DecodeAbort(message.bytes, &why)) {
    Fail(why, /*tell_others=*/false);
  } else {
    return Refused(known_as, "sent a control message that cannot be read");
  }
  return Status::Ok();
}

SessionStats Engine::Stats() const {
  SessionStats stats;
  stats.planned_buckets = plans_.buckets_done();
  stats.named_requests = named_done_;
  stats.plans = plans_.known();
  stats.node_bytes_sent = node_bytes_;
  stats.rail_bytes_sent = rail_bytes_;
  stats.engine_wakeups = wakeups_;
  stats.arena_bytes = static_cast<int64_t>(parts_->arena_bytes());
  if (topology().node_count() > 1) {
    stats.rail_latency_us = fabric().rail.link.latency_s * 1e6;
    stats.rail_bandwidth_mbps = fabric().rail.link.bytes_per_s * 8e-6;
  }
  return stats;
}

}  // namespace smddp
