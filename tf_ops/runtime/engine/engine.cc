#include "runtime/engine/engine.h"

#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/process/log.h"
#include "core/sync/test_delay.h"
#include "runtime/engine/session_end.h"

namespace smddp {
namespace {

// When nothing has moved for this long, the rank that has left was needed.
constexpr int64_t kStuckNs = 1000 * 1000000LL;

}  // namespace

Engine::Engine(FabricParts& parts, RunningTasks& tasks, double heartbeat_timeout_s, FailureCallback on_failure)
    : parts_(parts),
      tasks_(tasks),
      on_failure_(std::move(on_failure)),
      pace_(parts.node().doorbell(),
            CoresFor(parts.fabric().topology.local_size(), static_cast<int>(std::thread::hardware_concurrency())),
            /*polled=*/!parts.transport().rings_doorbell()),
      heartbeat_(parts.fabric().topology, heartbeat_timeout_s),
      departures_(parts_.fabric().topology),
      relay_(parts_.fabric().topology) {}

void Engine::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Engine::Stop(bool at_exit) {
  order_ = at_exit ? Order::kStopAtExit : Order::kStop;
  parts_.node().doorbell().Ring();
  if (thread_.joinable()) thread_.join();
}

bool Engine::Submit(std::function<void()> work) {
  if (!inbox_.Push(std::move(work))) return false;
  parts_.node().doorbell().Ring();
  return true;
}

void Engine::Loop() {
  while (true) {
    const uint32_t seen = parts_.node().doorbell().rings.load(std::memory_order_seq_cst);
    InjectTestDelay();
    const bool stopping = order_ != Order::kRun;
    pace_.BeginRound();
    bool worked = DrainInbox();
    const Result<bool> progress = parts_.transport().Progress();
    if (!progress.ok()) FailTransport(progress.status());
    const bool heard = ReadControl(&worked);
    SendControl();
    const Result<bool> stepped = tasks_.Step();
    if (!stepped.ok()) FailTransport(stepped.status());
    worked |= !stepped.ok() || *stepped;
    for (Component* component : components_) component->Step();
    if (stopping) break;
    const bool moved = worked || (progress.ok() && *progress);
    const int64_t now_ns = NowNs();
    const bool tick = pace_.TickDue(now_ns);
    // At most once between two reads of the control messages: a suspected rank may have said goodbye.
    if (tick || (expecting() && pace_.LookDue(now_ns))) LookAtPeers(now_ns);
    if (tick) Tick(now_ns);
    SendControl();
    pace_.EndRound(moved, worked, heard, now_ns);
    if (moved || heard) continue;
    if (pace_.MayEvacuate(expecting(), now_ns) && parts_.node().Evacuate()) {
      pace_.Evacuated();
    } else {
      pace_.Wait(seen, expecting(), Any(&Component::polls), now_ns);
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

// --- Tasks ---

void Engine::Run(RunningTask task) {
  if (tasks_.empty()) trace_.Record(TraceWhat::kCycleStart, task.name, 0);
  tasks_.Add(std::move(task));
}

// --- Control messages ---

void Engine::Post(int to, std::string message) {
  if (!departures_.has(to)) outbox_.Add(to, std::move(message));
}

void Engine::SendControl() {
  while (!outbox_.empty()) {
    outbox_.Flush([this](int to, std::string message) {
      if (departures_.has(to)) return;
      const Status status = SendNow(to, std::move(message));
      if (!status.ok()) Fail(status);  // posts once more at most: the session fails once
    });
  }
}

Status Engine::SendNow(int to, std::string message) {
  if (topology().node_of(to) != topology().node_index()) posted_to_.insert(to);
  control_messages_.fetch_add(1, std::memory_order_relaxed);
  control_bytes_.fetch_add(static_cast<int64_t>(message.size()), std::memory_order_relaxed);
  return parts_.transport().Post(to, std::move(message));
}

bool Engine::ReadControl(bool* worked) {
  Message message;
  bool heard = false;
  while (parts_.transport().Poll(&message)) {
    heard = true;
    for (std::string& each : Unpack(std::move(message.bytes))) {
      *worked |= BelongsToWork(each);
      const Status status = Deliver({message.from, std::move(each)});
      if (!status.ok()) Fail(status);
    }
  }
  return heard;
}

Status Engine::Deliver(const Message& message) {
  ControlType type;
  heartbeat_.Heard(message.from, NowNs());
  if (!TypeOf(message.bytes, &type)) return Refused(topology(), message.from);
  if (type == ControlType::kHeartbeat) return Status::Ok();
  if (type == ControlType::kGoodbye) return OnGoodbye(message);
  if (type == ControlType::kDeparted) return OnDeparted(message);
  if (type == ControlType::kAbort) {
    Abort abort;
    if (!Decode(message.bytes, &abort)) return Refused(topology(), message.from);
    FailHere(abort.why);
    return Status::Ok();
  }
  const auto reader = readers_.find(type);
  if (reader == readers_.end()) return Refused(topology(), message.from);
  const bool wanted = failed_.ok() || reader->second.delivery == Delivery::kAlways;
  return wanted && !leaving_ ? reader->second.component->OnMessage(message.from, message.bytes) : Status::Ok();
}

Status Engine::OnGoodbye(const Message& message) {
  Goodbye goodbye;
  if (!Decode(message.bytes, &goodbye)) return Refused(topology(), message.from);
  Depart(message.from, goodbye);
  if (goodbye.clean) return Status::Ok();
  FailHere(Status(Reason::kPeerLeft, "Rank " + std::to_string(topology().global_rank(message.from)) +
                                         " ended its session (hvd.shutdown, an exception or the end of its program) "
                                         "while operations were under way. Its own output says why."));
  return Status::Ok();
}

Status Engine::OnDeparted(const Message& message) {
  Departed departed;
  if (!Decode(message.bytes, &departed)) return Refused(topology(), message.from);
  for (const auto& [rank, goodbye] : departed.ranks) {
    if (rank < 0 || rank >= topology().size() || !goodbye.clean) return Refused(topology(), message.from);
    const bool tells_me = std::count(goodbye.told.begin(), goodbye.told.end(), topology().rank()) != 0;
    if (rank != topology().rank() && !departures_.has(rank) && !tells_me) Depart(rank, goodbye);
  }
  return Status::Ok();
}

void Engine::Depart(int rank, const Goodbye& goodbye) {
  departures_.Add(rank, goodbye, NowNs());
  if (goodbye.listens) ended_rank_ = topology().global_rank(rank);
  heartbeat_.Left(rank, goodbye.listens);
  if (!departures_.listens(rank)) parts_.transport().Forget(rank);
  for (Component* component : components_) component->OnDeparture(rank);
  for (const auto& [to, what] : relay_.Left(rank, goodbye)) PostToReaders(to, Encode(what));
}

// --- The watch ---

void Engine::Tick(int64_t now_ns) {
  for (Component* component : components_) {
    if (failed_.ok()) component->Tick(now_ns);
  }
  for (const int rank : departures_.Silent(now_ns)) {
    const std::string who = departures_.Sentence(rank);
    for (Component* component : components_) {
      if (!failed_.ok()) return;
      const Status status = component->AfterDeparture(rank, who);
      if (!status.ok()) Fail(status);
    }
    if (!failed_.ok() || tasks_.empty() || now_ns - pace_.last_moved_ns() <= kStuckNs) continue;
    Fail(Status(Reason::kPeerLeft, who + " while " + tasks_.all().front().name +
                                       " needed it. Do all ranks run the same number of steps?"));
  }
}

// The session of all ranks detects lost ranks; those of process sets fail with it.
void Engine::LookAtPeers(int64_t now_ns) {
  if (!failed_.ok() || topology().size() == 1 || topology().is_process_set()) return;
  heartbeat_.Tick(now_ns);
  parts_.node().Beat(now_ns);
  for (const int rank : heartbeat_.Due(now_ns)) Post(rank, Encode(HeartbeatMessage()));
  const auto signs_of = [this](int member) { return LifeSigns{parts_.node().BeatOf(member), !parts_.Lives(member)}; };
  const std::optional<std::string> lost = heartbeat_.FindLost(now_ns, signs_of);
  if (lost) Fail(Status(Reason::kPeerLost, *lost + UnderWay()));
}

void Engine::FailTransport(const Status& error) {
  const std::vector<int> lost = parts_.transport().lost();
  const bool names_lost = error.reason() == Reason::kPeerLost && !lost.empty();
  Fail(names_lost ? Status(Reason::kPeerLost, heartbeat_.Died(lost) + UnderWay()) : error);
}

int64_t Engine::OldestNs() const {
  int64_t oldest = tasks_.OldestNs();
  for (const Component* component : components_) oldest = std::min(oldest, component->OldestNs());
  return oldest;
}

// What this rank waits for, for the message about a lost rank.
std::string Engine::UnderWay() const {
  constexpr size_t kMaxNames = 6;
  std::vector<std::string> what;
  for (const RunningTask& running : tasks_.all()) what.push_back(running.name);
  for (const Component* component : components_) component->Describe(&what);
  if (what.empty()) return "";
  std::string text = " Under way on rank " + std::to_string(topology().global_rank(topology().rank())) + ": ";
  for (size_t i = 0; i < std::min(what.size(), kMaxNames); ++i) text += (i == 0 ? "" : ", ") + what[i];
  if (what.size() > kMaxNames) text += " and " + std::to_string(what.size() - kMaxNames) + " more";
  return text + ".";
}

// --- The end ---

void Engine::End(const Status& why, bool tell_others) {
  if (!failed_.ok()) return;
  failed_ = why;
  Log(LogLevel::kError, why.message());
  if (on_failure_) on_failure_(why);  // before a caller can ask for the failure
  if (tell_others) PostToReaders(topology().all().world_ranks(), Encode(Abort{why}));
  const bool memory_in_use = !parts_.transport().Abort();
  if (memory_in_use) {
    for (Component* component : components_) component->KeepMemory();
  }
  tasks_.FailAll(why, memory_in_use);
  for (Component* component : components_) component->OnFailure(why);
}

void Engine::PostToReaders(const std::vector<int>& ranks, const std::string& message) {
  for (const int rank : ranks) {
    if (rank == topology().rank()) continue;
    if (!departures_.has(rank)) {
      Post(rank, message);
    } else if (departures_.listens(rank)) {
      const Status status = SendNow(rank, message);
      if (!status.ok()) return FailHere(status);
    }
  }
  SendControl();
}

void Engine::SayGoodbye(const Goodbye& goodbye) {
  if (!goodbye.clean || !goodbye.listens) {
    return PostToReaders(topology().all().world_ranks(), Encode(goodbye));
  }
  SendControl();  // what waits for other ranks counts as sent: the goodbye follows it
  Goodbye to_some = goodbye;
  to_some.told.assign(posted_to_.begin(), posted_to_.end());
  std::vector<int> ranks = topology().node().world_ranks();
  ranks.insert(ranks.end(), posted_to_.begin(), posted_to_.end());
  PostToReaders(ranks, Encode(to_some));
  for (const auto& [to, what] : relay_.Left(topology().rank(), to_some)) PostToReaders(to, Encode(what));
}

void Engine::Leave() {
  leaving_ = true;
  const bool at_exit = order_ == Order::kStopAtExit;
  inbox_.Close();
  DrainInbox();
  if (failed_.ok()) {
    if (tasks_.empty()) {
      for (Component* component : components_) component->OnLeave();
    }
    const bool clean = tasks_.empty() && !Any(&Component::waiting);
    SayGoodbye({clean, /*listens=*/at_exit, {}});
    if (!clean) {
      FailHere(Status(Reason::kShutDown,
                      "The session was shut down (hvd.shutdown or the end of the program) while the operation was "
                      "under way."));
    }
  }
  SessionEnd end(parts_, departures_, pace_, [this](bool* moved) {
    if (!ReadControl(moved)) LookAtPeers(NowNs());
    SendControl();
    return failed_.ok();
  });
  if (at_exit) {
    const Status status = end.AwaitDepartures();
    if (!status.ok()) FailTransport(status);
  }
  end.Flush();
}

}  // namespace smddp
