#include "runtime/health/cancel_watch.h"

#include <algorithm>

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

// A cancelled step that has not moved for this long cannot complete.
constexpr int64_t kGraceNs = 5000 * 1000000LL;

}  // namespace

void CancelWatch::Add(const std::string& what) {
  Log(LogLevel::kDebug, "the step that holds '" + what + "' was cancelled");
  cancelled_.push_back({what, NowNs()});
}

void CancelWatch::Tick(int64_t now_ns) {
  if (cancelled_.empty()) return;
  // Everything under way is newer than the cancelled step: that step has ended, successfully or with its own error.
  const int64_t oldest_ns = bus_.OldestNs();
  const auto over = [&](const Cancelled& each) { return oldest_ns > each.when_ns; };
  cancelled_.erase(std::remove_if(cancelled_.begin(), cancelled_.end(), over), cancelled_.end());
  if (cancelled_.empty()) return;
  const Cancelled& first = cancelled_.front();
  if (now_ns - first.when_ns < kGraceNs || now_ns - bus_.last_worked_ns() < kGraceNs) return;
  const Topology& topology = bus_.topology();
  if (!report_.AskAll(now_ns) || !report_.AllWait(kGraceNs / 2)) return;
  bus_.Fail(
      Status(Reason::kStepGivenUp,
             "Rank " + std::to_string(topology.global_rank(topology.rank())) +
                 " gave up a step: another operation of the step failed there (see that rank's own error) while '" +
                 first.what + "' waited for the other ranks or for other gradients."));
}

}  // namespace smddp
