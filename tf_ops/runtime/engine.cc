#include "runtime/engine.h"

#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/log.h"
#include "runtime/operation_id.h"

namespace smddp {
namespace {

constexpr int64_t kWatchEveryNs = 200 * 1000000LL;
// Rounds without progress after which slots that others wait for are copied out of their way.
constexpr int kEvacuateAfterRounds = 64;
constexpr double kFlushSeconds = 5.0;

Backoff MakeBackoff(FabricParts& parts) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return Backoff(parts.node().doorbell(), CoresFor(parts.fabric().topology.local_size(), cores),
                 /*polled=*/!parts.world().rings_doorbell());
}

// All that a rank that has joined needs in order to take part.
Announcement Describe(const PlanSpec& spec) {
  Announcement announcement;
  announcement.kind = RequestKind::kPlan;
  for (const TensorSpec& tensor : spec.tensors) {
    announcement.dtypes.push_back(tensor.dtype);
    announcement.shapes.push_back(tensor.shape);
  }
  announcement.op = spec.op;
  announcement.prescale = spec.prescale;
  announcement.postscale = spec.postscale;
  announcement.wire_dtype = spec.wire_dtype;
  announcement.facts = DescribePlan(spec);
  announcement.plan_key = spec.key;
  return announcement;
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
      join_(parts_->fabric().topology.size()),
      coordinator_(parts_->fabric().topology, parts_->fabric().compute, join_),
      plans_(
          parts_->fabric(),
          PlanOptions{env.bucket_bytes, env.gradient_order == "observed", env.autotune, env.autotune_log},
          [this](RunningTask task) { Run(std::move(task)); },
          [this](const PlanOrder& order) { PostToOthers(Encode(order)); }, trace_),
      timeline_(parts_->fabric().topology, trace_,
                [this](int to, std::string message) { Post(to, std::move(message)); }) {}

void Engine::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Engine::Stop() {
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
    const bool stopping = stopping_;
    bool moved = DrainInbox();
    const Result<bool> progress = parts_->world().Progress();
    if (!progress.ok()) Fail(progress.status(), /*tell_others=*/true);
    moved |= progress.ok() && *progress;
    moved |= ReadControl();
    moved |= StepTasks();
    StepJoin();
    if (stopping) break;
    const int64_t now_ns = NowNs();
    if (now_ns - last_watch_ns_ > kWatchEveryNs) {
      last_watch_ns_ = now_ns;
      WatchStalls();
      WatchDepartures();
      WatchCancelled();
    }
    if (moved) {
      last_moved_ns_ = now_ns;
      idle_rounds_ = 0;
      backoff_.Reset();
    } else if ((!expecting() || ++idle_rounds_ % kEvacuateAfterRounds == 0) && parts_->node().Evacuate()) {
      backoff_.Reset();
    } else {
      wakeups_.fetch_add(1, std::memory_order_relaxed);
      backoff_.Wait(seen, expecting(), now_ns - last_moved_ns_);
    }
  }
  Leave();
}

bool Engine::DrainInbox() {
  std::vector<std::function<void()>> work;
  if (!inbox_.TakeAll(&work)) return false;
  for (auto& item : work) item();
  return true;
}

// --- Named requests ---

void Engine::SubmitNamed(NamedRequest request) {
  if (!failed_.ok()) return request.done(failed_);
  if (join_.waiting()) {
    auto shared = std::make_shared<NamedRequest>(std::move(request));
    return Hold([this, shared] { SubmitNamed(std::move(*shared)); });
  }
  if (trace_.on())
    trace_.Record("op_announced", request.announcement.name, 0, CapitalNameOf(request.announcement.kind));
  request.submitted_ns = NowNs();
  request.announcement.round = join_.round();
  if (request.announcement.kind != RequestKind::kPlan) {
    ++own_named_;
    request.done = [this, done = std::move(request.done)](const Status& status) {
      --own_named_;
      done(status);
    };
  }
  Announce(named_.Add(std::move(request)));
}

// By value: a verdict may come, and take the request away, while it is sent.
void Engine::Announce(Announcement announcement) {
  const int coordinator = CoordinatorOf(announcement, topology().size());
  if (coordinator == topology().rank()) return OnAnnouncement(coordinator, std::move(announcement));
  Post(coordinator, Encode(announcement));
}

void Engine::OnAnnouncement(int from, Announcement announcement) {
  const auto verdict = coordinator_.Add(from, std::move(announcement), NowNs());
  if (verdict) SendVerdict(*verdict, topology().world().world_ranks());
}

void Engine::SendVerdict(const Verdict& verdict, const std::vector<int>& to) {
  const std::string message = Encode(verdict);
  bool to_me = false;
  for (int rank : to) {
    if (rank == topology().rank()) {
      to_me = true;
    } else {
      Post(rank, message);
    }
  }
  if (to_me) OnVerdict(verdict);
}

void Engine::OnVerdict(const Verdict& verdict) {
  const auto& joined = verdict.joined;
  if (std::find(joined.begin(), joined.end(), topology().rank()) != joined.end()) return OnVerdictOfOthers(verdict);
  NamedRequest request;
  if (!named_.Take(verdict.name, &request)) return;
  if (!verdict.status.ok()) {
    trace_.Record("op_failed", verdict.name, 0);
    return request.done(verdict.status);
  }
  Result<TaskPtr> task = request.begin(verdict);
  if (!task.ok()) {
    request.done(task.status());
    return Fail(task.status(), /*tell_others=*/true);  // the other ranks have begun
  }
  if (trace_.on()) trace_.Record("op_start", verdict.name, 0, CapitalNameOf(request.announcement.kind));
  RunningTask running;
  running.task = std::move(*task);
  running.keep = std::move(request.keep);
  running.submitted_ns = request.submitted_ns;
  running.name = std::string(NameOf(request.announcement.kind)) + " '" + verdict.name + "'";
  running.done = [this, name = verdict.name, done = std::move(request.done)](const Status& status) {
    trace_.Record("op_done", name, 0);
    if (status.ok()) named_done_.fetch_add(1, std::memory_order_relaxed);
    done(status);
  };
  Run(std::move(running));
}

void Engine::Run(RunningTask task) {
  if (tasks_.empty()) trace_.Record("cycle_start", task.name, 0);
  task.since_ns = NowNs();
  tasks_.push_back(std::move(task));
}

// --- Planned reductions ---

void Engine::AddPlan(int id) {
  if (!failed_.ok() || plans_.knows(id)) return;
  if (join_.waiting()) return Hold([this, id] { AddPlan(id); });
  const std::shared_ptr<const PlanSpec> found = registry_.Find(id);
  if (found == nullptr || plans_.Claim(id, *found)) return;
  const PlanSpec& spec = *found;
  // Matched by key and by how many plans of that key came before: what one rank traces besides does not matter.
  const std::string name = "plan '" + spec.key + "', version " + std::to_string(plan_versions_[spec.key] + 1);
  if (!plans_.Add(id, name, spec).ok()) return;
  ++plan_versions_[spec.key];
  NamedRequest request;
  request.announcement = Describe(spec);
  request.announcement.name = name;
  request.begin = [this, id](const Verdict& verdict) -> Result<TaskPtr> {
    if (verdict.operation >= kMaxPlans) return TooManyPlans();
    plans_.SetNumber(id, static_cast<int>(verdict.operation));
    return TaskPtr();
  };
  request.done = [this, id](const Status& status) { plans_.Decide(id, status); };
  SubmitNamed(std::move(request));
}

void Engine::ReducePlanned(int id, int index, const TensorRef& tensor, DoneCallback done) {
  if (!failed_.ok()) return done(failed_);
  if (join_.waiting()) {
    return Hold([this, id, index, tensor, done = std::move(done)]() mutable {
      ReducePlanned(id, index, tensor, std::move(done));
    });
  }
  AddPlan(id);  // unless its graph was traced in an earlier session it is there
  const bool tell = join_.anyone();
  const int64_t steps = tell ? plans_.StepsOf(id) : 0;
  const Status status = plans_.Arrive(id, index, tensor, std::move(done));
  if (tell && plans_.StepsOf(id) > steps) TellStep(id);
  if (!status.ok()) Fail(status, /*tell_others=*/true);  // its bucket would wait for ever, everywhere
}

void Engine::Cancel(const std::string& name) {
  if (!failed_.ok()) return;
  Log(LogLevel::kDebug, "the step that holds '" + name + "' was cancelled");
  cancelled_.emplace_back(name, NowNs());
}

Status Engine::StartTimeline(const std::string& path, bool mark_cycles) {
  if (!failed_.ok()) return failed_;
  return timeline_.Start(path, mark_cycles);
}

bool Engine::StepTasks() {
  bool moved = false;
  for (auto at = tasks_.begin(); at != tasks_.end();) {
    const Result<Progress> progress = at->task != nullptr ? at->task->Step() : Progress::kDone;
    if (!progress.ok()) {
      Fail(progress.status(), /*tell_others=*/true);
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
    node_bytes_ = parts_->node().bytes_published();  // before the caller can ask
    rail_bytes_ = parts_->rail_bytes();
    finished.done(Status::Ok());
    if (!failed_.ok()) return true;  // what it told the other ranks could not be sent: the tasks are gone
  }
  return moved;
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

bool Engine::ReadControl() {
  Message message;
  bool moved = false;
  while (parts_->world().Poll(&message)) {
    moved = true;
    const Status status = OnControl(message);
    if (!status.ok()) Fail(status, /*tell_others=*/true);
  }
  return moved;
}

Status Engine::OnControl(const Message& message) {
  ControlType type;
  Announcement announcement;
  Verdict verdict;
  PlanOrder order;
  JoinNotice notice;
  JoinOver over;
  Status why;
  bool clean = false;
  const bool known = TypeOf(message.bytes, &type);
  if (known && type == ControlType::kAnnouncement && Decode(message.bytes, &announcement)) {
    if (failed_.ok()) OnAnnouncement(message.from, std::move(announcement));
  } else if (known && type == ControlType::kVerdict && Decode(message.bytes, &verdict)) {
    if (failed_.ok()) OnVerdict(verdict);
  } else if (known && type == ControlType::kPlanOrder && Decode(message.bytes, &order)) {
    if (failed_.ok()) return plans_.Adopt(order);
  } else if (known && type == ControlType::kJoinNotice && Decode(message.bytes, &notice)) {
    if (failed_.ok()) OnJoinNotice(message.from, notice);
  } else if (known && type == ControlType::kJoinOver && Decode(message.bytes, &over)) {
    if (failed_.ok()) OnJoinOver(over);
  } else if (known && type == ControlType::kGoodbye && DecodeGoodbye(message.bytes, &clean)) {
    OnGoodbye(message.from, clean);
  } else if (known && type == ControlType::kTimeline &&
             (!failed_.ok() || timeline_.OnMessage(message.from, message.bytes))) {
    return Status::Ok();
  } else if (known && type == ControlType::kAbort && DecodeAbort(message.bytes, &why)) {
    Fail(why, /*tell_others=*/false);
  } else {
    return Status(Code::kInternal, "Rank " + std::to_string(topology().global_rank(message.from)) +
                                       " sent a control message that cannot be read. Do all ranks run the same "
                                       "version of smddp_tf?");
  }
  return Status::Ok();
}

// --- Endings ---

void Engine::Fail(const Status& why, bool tell_others) {
  if (!failed_.ok()) return;
  failed_ = why;
  Log(LogLevel::kError, why.message());
  if (tell_others) PostToOthers(EncodeAbort(why));
  const bool quiet = parts_->world().Abort();
  std::list<RunningTask> tasks = std::move(tasks_);
  tasks_.clear();
  for (RunningTask& running : tasks) {
    if (!quiet) (void)running.task.release();  // MPI may still write into its memory: lost on purpose
    running.task.reset();
    running.done(why);
  }
  named_.FailAll(why);
  plans_.FailAll(why);
  join_.End(why);
  ReleaseHeld();
  timeline_.OnFailure();
  if (on_failure_) on_failure_(why);
}

void Engine::Leave() {
  inbox_.Close();
  DrainInbox();
  if (failed_.ok()) {
    const bool clean = tasks_.empty() && !named_.waiting() && !plans_.waiting() && !join_.waiting();
    PostToOthers(EncodeGoodbye(clean));
    if (!clean) {
      Fail(Status(Code::kAborted,
                  "The session was shut down (hvd.shutdown or the end of the program) while the operation was under "
                  "way."),
           /*tell_others=*/false);
    }
  }
  const Deadline deadline = Deadline::After(kFlushSeconds);
  while (parts_->world().busy() && !deadline.passed()) {
    if (!parts_->world().Progress().ok()) break;
    usleep(50);
  }
}

SessionStats Engine::Stats() const {
  SessionStats stats;
  stats.planned_buckets = plans_.buckets_done();
  stats.named_requests = named_done_;
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
