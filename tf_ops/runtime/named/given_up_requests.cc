#include "runtime/named/given_up_requests.h"

#include "core/clock.h"

namespace smddp {

void GivenUpRequests::Cancel(const std::string& name) { cancelled_.emplace_back(name, NowNs()); }

void GivenUpRequests::Tick(int64_t now_ns) {
  while (!cancelled_.empty() && now_ns - cancelled_.front().second >= kSettleNs) {
    const auto [name, when_ns] = std::move(cancelled_.front());
    cancelled_.erase(cancelled_.begin());
    const NamedRequest* const waits = named_.Waiting(name);
    if (waits != nullptr && waits->submitted_ns <= when_ns) coordination_.GiveUp({name});  // or it is of a later step
  }
}

void GivenUpRequests::BeginRun(const std::string& name) {
  if (expected_.insert(name).second || !bus_.failure().ok()) return;
  coordination_.GiveUp({name, /*missing=*/true, rounds_.round()});
}

void GivenUpRequests::GiveUpExpected() {
  for (const std::string& name : std::exchange(expected_, {})) {
    coordination_.GiveUp({name, /*missing=*/true, rounds_.round()});
  }
}

}  // namespace smddp
