#include "collectives/device/group_calls.h"

#include "core/clock.h"

namespace smddp {
namespace {

constexpr int64_t kCheckEveryNs = 100 * 1000000LL;
constexpr int64_t kWatchNs = 500 * 1000000LL;

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
    SMDDP_ASSIGN_OR_RETURN(const bool launched, Reported(group_->Ready()));
    if (!launched) return Status::Ok();
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
  return group_->Call(calls, stream_);
}

Result<bool> GroupCalls::Reported(const Result<bool>& answer) {
  if (answer.ok()) return answer;
  const int64_t now_ns = NowNs();
  if (lost_ns_ == 0) lost_ns_ = now_ns;
  if (answer.status().reason() == Reason::kPeerLost && now_ns - lost_ns_ < kWatchNs) return false;
  return answer;
}

Result<bool> GroupCalls::Healthy() {
  const Status health = group_->Health();
  return Reported(health.ok() ? Result<bool>(true) : Result<bool>(health));
}

Status GroupCalls::Check() {
  const int64_t now_ns = NowNs();
  if (now_ns - checked_ns_ < kCheckEveryNs) return Status::Ok();
  checked_ns_ = now_ns;
  return Healthy().status();
}

}  // namespace smddp
