#include "runtime/engine/session_end.h"

#include <chrono>
#include <thread>

#include "core/clock.h"

namespace smddp {
namespace {

constexpr double kFlushSeconds = 5.0;
constexpr std::chrono::microseconds kPause(50);

}  // namespace

Status SessionEnd::AwaitDepartures() {
  bool well = true;
  while (well && !departures_.all_left()) {
    const uint32_t seen = parts_.node().doorbell().rings.load(std::memory_order_seq_cst);
    pace_.BeginRound();
    SMDDP_ASSIGN_OR_RETURN(bool moved, parts_.transport().Progress());
    if (!parts_.LetMpiMove().ok()) break;
    well = read_(&moved);
    if (well && !moved) pace_.WaitLong(seen);
  }
  return Status::Ok();
}

// Messages to ranks that have said goodbye are dropped: they would never be read.
void SessionEnd::Flush() {
  const Deadline deadline = Deadline::After(kFlushSeconds);
  while (parts_.transport().busy() && !deadline.passed()) {
    pace_.BeginRound();
    if (!parts_.transport().Progress().ok()) break;
    Message message;
    Goodbye goodbye;
    while (parts_.transport().Poll(&message)) {
      for (const std::string& each : Unpack(std::move(message.bytes))) {
        if (Decode(each, &goodbye)) parts_.transport().Forget(message.from);
      }
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace smddp
