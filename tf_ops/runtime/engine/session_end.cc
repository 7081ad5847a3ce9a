// How the engine ends a session, after the last request: what is waited for, and how long.
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "runtime/engine/engine.h"

namespace smddp {
namespace {

constexpr double kFlushSeconds = 5.0;
constexpr double kReadersSeconds = 2.0;  // ranks of a node usually end at the same time
constexpr std::chrono::microseconds kPause(50);

}  // namespace

void Engine::Leave() {
  leaving_ = true;
  const bool at_exit = order_ == Order::kStopAtExit;
  inbox_.Close();
  DrainInbox();
  if (failed_.ok()) SayGoodbye(at_exit);
  if (at_exit) AwaitDepartures();
  if (Any(&Component::lends) && !AwaitReaders()) {
    for (Component* component : components_) component->KeepMemory();
  }
  Flush();
}

void Engine::SayGoodbye(bool at_exit) {
  if (tasks_.empty()) {
    // So that my goodbye confirms that I have released the memory of other ranks.
    for (Component* component : components_) component->OnLeave();
  }
  const bool clean = tasks_.empty() && !Any(&Component::waiting);
  const auto listens = at_exit                  ? Goodbye::Listens::kToAll
                       : Any(&Component::lends) ? Goodbye::Listens::kToNode
                                                : Goodbye::Listens::kToNobody;
  PostToAllWhoRead(Encode(Goodbye{clean, listens}));
  if (clean) return;
  FailHere(Status(Reason::kShutDown,
                  "The session was shut down (hvd.shutdown or the end of the program) while the operation was under "
                  "way."));
}

void Engine::AwaitDepartures() {
  for (bool well = true; well && !departures_.all_left();) {
    const uint32_t seen = parts_.node().doorbell().rings.load(std::memory_order_seq_cst);
    pace_.BeginRound();
    const Result<bool> progress = parts_.transport().Progress();
    if (!progress.ok()) return FailTransport(progress.status());
    if (!parts_.LetMpiMove().ok()) return;
    bool moved = *progress;
    if (!ReadControl(&moved)) LookAtPeers(NowNs());
    well = failed_.ok();
    if (well && !moved) pace_.WaitLong(seen);
  }
}

bool Engine::AwaitReaders() {
  const Deadline deadline = Deadline::After(kReadersSeconds);
  for (bool well = true; well && !departures_.node_left() && !deadline.passed(); well = failed_.ok()) {
    pace_.BeginRound();
    if (!parts_.transport().Progress().ok()) break;
    bool moved = false;
    ReadControl(&moved);
    if (!moved) std::this_thread::sleep_for(kPause);
  }
  return departures_.node_left();
}

// Messages to ranks that have said goodbye are dropped: they would never be read.
void Engine::Flush() {
  const Deadline deadline = Deadline::After(kFlushSeconds);
  while (parts_.transport().busy() && !deadline.passed()) {
    pace_.BeginRound();
    if (!parts_.transport().Progress().ok()) break;
    Message message;
    Goodbye goodbye;
    while (parts_.transport().Poll(&message)) {
      if (Decode(message.bytes, &goodbye)) parts_.transport().Forget(message.from);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace smddp
