// How a session ends: by a failure, by shutdown, or with the program.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "runtime/engine.h"

namespace smddp {
namespace {

constexpr double kFlushSeconds = 5.0;
// For the other ranks of the node to end their sessions too, which they mostly do at the same time.
constexpr double kReadersSeconds = 2.0;
// To the backoff: as if nothing had moved for so long.
constexpr int64_t kLongIdleNs = 200 * 1000000LL;

}  // namespace

void Engine::PostLastWords(const std::string& message) {
  PostToOthers(message);
  for (int rank : listening_) {
    const Status status = parts_->world().Post(rank, message);
    if (!status.ok()) return Fail(status, /*tell_others=*/false);
  }
}

void Engine::Fail(const Status& why, bool tell_others) {
  if (!failed_.ok()) return;
  failed_ = why;
  Log(LogLevel::kError, why.message());
  if (on_failure_) on_failure_(why);  // before a caller can ask
  if (tell_others) PostLastWords(EncodeAbort(why));
  const bool quiet = parts_->world().Abort();
  if (!quiet) {
    devices_.KeepMemory();
    staging_.KeepMemory();
  }
  std::list<RunningTask> tasks = std::move(tasks_);
  tasks_.clear();
  for (RunningTask& running : tasks) {
    if (!quiet) (void)running.task.release();  // MPI may still write into its memory: lost on purpose
    running.task.reset();
    running.done(why);
  }
  devices_.End(/*failed=*/true);
  named_.FailAll(why);
  plans_.FailAll(why);
  join_.End(why);
  ReleaseHeld();
  timeline_.OnFailure();
}

void Engine::Leave() {
  leaving_ = true;
  Log(LogLevel::kDebug, std::string("the session") + (topology().is_process_set() ? " of a process set" : "") +
                            " ends: " + std::to_string(named_done_) + " requests, " +
                            std::to_string(plans_.buckets_done()) + " gradient buckets, " +
                            std::to_string(node_bytes_) + " bytes to ranks of this node and " +
                            std::to_string(rail_bytes_) + " to other nodes");
  inbox_.Close();
  DrainInbox();
  if (failed_.ok()) {
    if (tasks_.empty())
      devices_.End(/*failed=*/false);  // so that my goodbye says that I have given up what others lent
    const bool clean = tasks_.empty() && !named_.waiting() && !plans_.waiting() && !join_.waiting();
    PostLastWords(Encode(Goodbye{clean, at_exit_}));
    if (!clean) {
      Fail(Status(Code::kAborted,
                  "The session was shut down (hvd.shutdown or the end of the program) while the operation was under "
                  "way."),
           /*tell_others=*/false);
    }
  }
  if (at_exit_) AwaitDepartures();
  AwaitReaders();
  const Deadline deadline = Deadline::After(kFlushSeconds);
  while (parts_->world().busy() && !deadline.passed()) {
    turns_.fetch_add(1, std::memory_order_relaxed);
    if (!parts_->world().Progress().ok()) break;
    ForgetDeparted();
    usleep(50);
  }
}

// MPI_Finalize waits for all ranks, deaf and without a deadline: what happens to them meanwhile is seen here.
void Engine::AwaitDepartures() {
  while (failed_.ok() && static_cast<int>(departed_.size()) < topology().size() - 1) {
    const uint32_t seen = parts_->node().doorbell().rings.load(std::memory_order_seq_cst);
    turns_.fetch_add(1, std::memory_order_relaxed);
    const Result<bool> progress = parts_->world().Progress();
    if (!progress.ok()) return Fail(OfTransport(progress.status()), /*tell_others=*/true);
    if (!parts_->LetMpiMove().ok()) return;
    bool moved = *progress;
    if (ReadControl(&moved) || moved) continue;
    WatchPeers();
    backoff_.Wait(seen, /*expecting=*/false, kLongIdleNs);
  }
}

// The ranks of my node may have imported memory of my GPU. Their goodbye says that they have given it up; nobody who
// failed says one.
void Engine::AwaitReaders() {
  if (!devices_.lends()) return;
  const auto gone = [this] {
    const std::vector<int> mates = topology().node().world_ranks();
    return std::all_of(mates.begin(), mates.end(),
                       [this](int rank) { return rank == topology().rank() || departed_.count(rank) != 0; });
  };
  const Deadline deadline = Deadline::After(kReadersSeconds);
  while (failed_.ok() && !gone() && !deadline.passed()) {
    turns_.fetch_add(1, std::memory_order_relaxed);
    if (!parts_->world().Progress().ok()) break;
    bool moved = false;
    if (!ReadControl(&moved)) usleep(100);
  }
  if (!gone()) devices_.KeepMemory();
}

// Nothing need reach those who have said goodbye, and they would never take it.
void Engine::ForgetDeparted() {
  Message message;
  Goodbye goodbye;
  while (parts_->world().Poll(&message)) {
    if (Decode(message.bytes, &goodbye)) parts_->world().Forget(message.from);
  }
}

}  // namespace smddp
