#include "runtime/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/process/log.h"
#include "core/sync/test_delay.h"

namespace smddp {
namespace {

// When nothing has moved for this long, the rank that has left was needed.
constexpr int64_t kStuckNs = 1000 * 1000000LL;
constexpr double kFlushSeconds = 5.0;
constexpr std::chrono::microseconds kFlushPause(50);

// Does any component answer with yes?
bool Any(const std::vector<Component*>& components, bool (Component::*question)() const) {
  return std::any_of(components.begin(), components.end(),
                     [question](const Component* each) { return (each->*question)(); });
}

// Waits until all messages have been sent. Those to ranks that have said goodbye are dropped: they would never be read.
void Flush(Transport& transport, LoopPace* pace) {
  const Deadline deadline = Deadline::After(kFlushSeconds);
  while (transport.busy() && !deadline.passed()) {
    pace->BeginRound();
    if (!transport.Progress().ok()) break;
    Message message;
    Goodbye goodbye;
    while (transport.Poll(&message)) {
      for (const std::string& each : Unpack(std::move(message.bytes))) {
        if (Decode(each, &goodbye)) transport.Forget(message.from);
      }
    }
    std::this_thread::sleep_for(kFlushPause);
  }
}

}  // namespace

Engine::Engine(FabricParts& parts, RunningTasks& tasks, double heartbeat_timeout_s, FailureCallback on_failure)
    : parts_(parts),
      tasks_(tasks),
      on_failure_(std::move(on_failure)),
      pace_(parts.node().doorbell(),
            CoresFor(parts.fabric().topology.local_size(), static_cast<int>(std::thread::hardware_concurrency())),
            /*polled=*/!parts.transport().rings_doorbell()),
      departures_(parts.fabric().topology),
      heartbeat_(parts.fabric().topology, departures_, heartbeat_timeout_s),
      router_(*this, parts.transport(), departures_, heartbeat_, components_) {}

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
    bool worked = inbox_.RunAll();
    const Result<bool> progress = parts_.transport().Progress();
    if (!progress.ok()) FailTransport(progress.status());
    const bool heard = router_.Read(&worked);
    router_.Send();
    const Result<bool> stepped = tasks_.Step();
    if (!stepped.ok()) FailTransport(stepped.status());
    worked |= !stepped.ok() || *stepped;
    for (Component* component : components_) component->Step();
    if (stopping) break;
    const bool moved = worked || (progress.ok() && *progress);
    const int64_t now_ns = NowNs();
    const bool tick = pace_.TickDue(now_ns);
    // At most once between two reads of the control messages: a suspected rank may have said goodbye.
    if (tick || (pace_.LookDue(now_ns) && expecting())) LookAtPeers(now_ns);
    if (tick) Tick(now_ns);
    router_.Send();
    pace_.EndRound(moved, worked, heard, now_ns);
    if (moved || heard) continue;
    const bool expects = expecting();
    if (pace_.MayEvacuate(expects, now_ns) && parts_.node().Evacuate()) {
      pace_.Evacuated();
    } else {
      pace_.Wait(seen, expects, Any(components_, &Component::polls), now_ns);
    }
  }
  Leave();
}

bool Engine::expecting() const {
  return !tasks_.empty() || Any(components_, &Component::expecting) || parts_.transport().busy();
}

void Engine::Run(RunningTask task) {
  if (tasks_.empty()) trace_.Record(TraceWhat::kCycleStart, task.name, 0);
  tasks_.Add(std::move(task));
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
    Fail(Status(Reason::kPeerLeft, who, " while ", tasks_.all().front().name,
                " needed it. Do all ranks run the same number of steps?"));
  }
}

// The session of all ranks detects lost ranks; those of process sets fail with it.
void Engine::LookAtPeers(int64_t now_ns) {
  if (!failed_.ok() || topology().size() == 1 || topology().is_process_set()) return;
  heartbeat_.Tick(now_ns);
  parts_.node().Beat(now_ns);
  for (const int rank : heartbeat_.Due(now_ns)) {
    heartbeat_.Unanswered(rank, parts_.transport().UnansweredNs(rank));
    Post(rank, Encode(HeartbeatMessage()));
  }
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
  const size_t named = std::min(what.size(), kMaxNames), more = what.size() - named;
  what.resize(named);
  return Concat(" Under way on rank ", topology().global_rank(topology().rank()), ": ", Listed(what),
                more > 0 ? Concat(" and ", more, " more") : "", ".");
}

// --- The end ---

void Engine::End(const Status& why, bool tell_others) {
  if (!failed_.ok()) return;
  failed_ = why;
  Log(LogLevel::kError, why.message());
  if (on_failure_) on_failure_(why);  // before a caller can ask for the failure
  if (tell_others) router_.PostToReaders(topology().all().world_ranks(), Encode(Abort{why}));
  const bool memory_in_use = !parts_.transport().Abort();
  if (memory_in_use) {
    for (Component* component : components_) component->KeepMemory();
  }
  tasks_.FailAll(why, memory_in_use);
  for (Component* component : components_) component->OnFailure(why);
}

void Engine::Leave() {
  router_.Close();
  const bool at_exit = order_ == Order::kStopAtExit;
  inbox_.Close();
  inbox_.RunAll();
  if (failed_.ok()) {
    if (tasks_.empty()) {
      for (Component* component : components_) component->OnLeave();
    }
    const bool clean = tasks_.empty() && !Any(components_, &Component::waiting);
    router_.SayGoodbye({clean, /*listens=*/at_exit, {}});
    if (!clean) {
      FailHere(Status(Reason::kShutDown,
                      "The session was shut down (hvd.shutdown or the end of the program) while the operation was "
                      "under way."));
    }
  }
  if (at_exit) AwaitDepartures();
  Flush(parts_.transport(), &pace_);
}

void Engine::AwaitDepartures() {
  while (failed_.ok() && !departures_.all_left()) {
    const uint32_t seen = parts_.node().doorbell().rings.load(std::memory_order_seq_cst);
    pace_.BeginRound();
    const Result<bool> progress = parts_.transport().Progress();
    if (!progress.ok()) return FailTransport(progress.status());
    if (!parts_.LetMpiMove().ok()) return;
    bool moved = *progress;
    if (!router_.Read(&moved)) LookAtPeers(NowNs());
    router_.Send();
    if (failed_.ok() && !moved) pace_.WaitLong(seen);
  }
}

}  // namespace smddp
