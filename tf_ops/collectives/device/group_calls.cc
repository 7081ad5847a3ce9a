#include "collectives/device/group_calls.h"

#include "core/clock.h"

namespace smddp {
namespace {

constexpr int64_t kCheckEveryNs = 100 * 1000000LL;
constexpr int64_t kWatchNs = 2000 * 1000000LL;

}  // namespace

Status GroupCalls::Submit(Key key, const GroupCall& call, PooledEventPtr after) {
  waiting_[key] = {call, std::move(after)};
  return order_.Want(key);
}

Result<PooledEventPtr> GroupCalls::Made(Key key) {
  SMDDP_RETURN_IF_ERROR(Step());
  auto made = made_.extract(key);
  return made ? std::move(made.mapped()) : PooledEventPtr();
}

Status GroupCalls::Step() {
  if (!launching_.empty()) {
    const Result<bool> launched = group_->Ready();
    SMDDP_ASSIGN_OR_RETURN(const bool healthy, Reported(launched.status()));
    if (!healthy || !*launched) return Status::Ok();
    SMDDP_ASSIGN_OR_RETURN(last_, events_.Mark(stream_));
    for (const Key key : launching_) made_[key] = last_;
    launching_.clear();
    order_.Finish();
  }
  SMDDP_ASSIGN_OR_RETURN(launching_, order_.Turn());
  if (launching_.empty()) return Status::Ok();
  std::vector<GroupCall> calls;
  for (const Key key : launching_) {
    SMDDP_RETURN_IF_ERROR(waiting_[key].after->MakeWait(stream_));
    calls.push_back(waiting_[key].call);
    waiting_.erase(key);
  }
  return Reported(group_->Call(calls, stream_)).status();  // after an error Ready says the same
}

Result<bool> GroupCalls::Reported(const Status& status) {
  if (status.ok()) return true;
  const int64_t now_ns = NowNs();
  if (lost_ns_ == 0) lost_ns_ = now_ns;
  if (status.reason() == Reason::kPeerLost && now_ns - lost_ns_ < kWatchNs) return false;
  return status;
}

Status GroupCalls::Check() {
  const int64_t now_ns = NowNs();
  if (now_ns - checked_ns_ < kCheckEveryNs) return Status::Ok();
  checked_ns_ = now_ns;
  return Healthy().status();
}

}  // namespace smddp
