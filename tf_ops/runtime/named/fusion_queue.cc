#include "runtime/named/fusion_queue.h"

#include <algorithm>

#include "runtime/requests/named_request.h"

namespace smddp {
namespace {

// While one ends, the next moves data. More do not make anything faster, and fewer are put together.
constexpr int kTravelling = 2;
// One view, with one scaling (requests/reduce_job.h).
bool FitTogether(const Announcement& a, const Announcement& b) {
  return a.tensors[0].dtype == b.tensors[0].dtype && a.op == b.op && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.wire_dtype == b.wire_dtype;
}

}  // namespace

bool FusionQueue::Takes(const Verdict& verdict) {
  return verdict.kind == RequestKind::kAllreduce && verdict.status.ok() && verdict.data.empty() &&
         verdict.joined.empty();
}

Verdict FusionQueue::Remove(std::deque<Verdict>::iterator at) {
  ++travelling_;
  Verdict removed = std::move(*at);
  waiting_.erase(at);
  removed.is_limited = true;
  return removed;
}

std::optional<Verdict> FusionQueue::Take(const std::string& name) {
  const auto same = [&](const Verdict& each) { return each.name == name; };
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), same);
  return at != waiting_.end() ? std::optional<Verdict>(Remove(at)) : std::nullopt;
}

std::optional<Verdict> FusionQueue::Next() {
  if (waiting_.empty() || travelling_ >= kTravelling) return std::nullopt;
  Verdict next = Remove(waiting_.begin());
  if (!MayBeFused(next.request)) return next;
  int64_t bytes = BytesOf(next.request);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const Announcement& other = at->request;
    const bool fits = MayBeFused(other) && FitTogether(next.request, other) && bytes + BytesOf(other) <= most_bytes_;
    if (!fits) {
      ++at;
      continue;
    }
    bytes += BytesOf(other);
    next.fused.push_back(std::move(*at));
    at = waiting_.erase(at);
  }
  return next;
}

}  // namespace smddp
