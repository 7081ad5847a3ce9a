#include "core/sync/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/sync/test_delay.h"

namespace smddp {
namespace {

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Doorbell::Ring() {
  InjectTestDelay();
  rings.fetch_add(1, std::memory_order_seq_cst);
  InjectTestDelay();
  if (sleeping.load(std::memory_order_seq_cst) != 0) Futex(&rings, FUTEX_WAKE, 1, nullptr);
}

void Doorbell::Sleep(uint32_t seen, int64_t microseconds) {
  const timespec timeout = {microseconds / 1000000, (microseconds % 1000000) * 1000};
  InjectTestDelay();
  sleeping.store(1, std::memory_order_seq_cst);
  InjectTestDelay();
  if (rings.load(std::memory_order_seq_cst) == seen) Futex(&rings, FUTEX_WAIT, seen, &timeout);
  sleeping.store(0, std::memory_order_seq_cst);
}

}  // namespace smddp
