#include "runtime/engine/driving.h"

#include "core/clock.h"
#include "core/sync/test_delay.h"

namespace smddp {
namespace {

// So long after a caller has driven the next one is expected. Messages of other ranks may then wait for a round until
// the thread looks; none is in a hurry: when a caller of this rank waits, somebody drives, or the thread was woken.
constexpr int64_t kLingerNs = 10 * 1000000LL;
constexpr int64_t kDrivenUs = 5000, kLingerUs = 1000;

}  // namespace

void Driving::End() {
  ended_ns_ = NowNs();
  InjectTestDelay();
  begun_ = false;
}

void Driving::Wake() {
  doorbell_.Ring();
  InjectTestDelay();
  if (begun_) return;  // the driver works, or looks after its End
  ended_ns_ = 0;
  InjectTestDelay();
  bell_.Ring();
}

bool Driving::lingers() const {
  const int64_t ended_ns = ended_ns_;
  return ended_ns != 0 && NowNs() - ended_ns < kLingerNs;
}

bool Driving::AwaitTurn() {
  const uint32_t seen = bell_.rings.load(std::memory_order_seq_cst);
  parked_ = false;  // before the question: a driver that begins after it sees this
  InjectTestDelay();
  if (!begun_ && !lingers()) return true;
  parked_ = true;
  bell_.Sleep(seen, begun_ ? kDrivenUs : kLingerUs);
  return !begun_;
}

}  // namespace smddp
