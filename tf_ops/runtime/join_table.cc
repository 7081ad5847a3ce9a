#include "runtime/join_table.h"

#include <algorithm>
#include <utility>

namespace smddp {

bool JoinTable::anyone() const {
  return std::any_of(joins_.begin(), joins_.end(), [this](uint32_t joins) { return joins > round_; });
}

void JoinTable::Begin(int* last, DoneCallback done, int64_t now_ns) {
  last_ = last;
  done_ = std::move(done);
  since_ns_ = now_ns;
  ending_ = drained_ = false;
}

void JoinTable::Over(int last) {
  *last_ = last;
  ++round_;
  ending_ = true;
}

void JoinTable::End(const Status& status) {
  const DoneCallback done = std::exchange(done_, nullptr);
  ending_ = false;
  if (done) done(status);
}

std::optional<JoinOver> JoinTable::Decide(int from, const JoinNotice& notice) {
  if (notice.joins) {
    ++joined_ranks_;
    next_.last = from;
    for (const auto& [plan, steps] : notice.steps) next_.steps[plan] = std::max(next_.steps[plan], steps);
  }
  if (notice.drained) ++drained_ranks_;
  const int size = static_cast<int>(joins_.size());
  if (joined_ranks_ < size || drained_ranks_ < size) return std::nullopt;
  joined_ranks_ = drained_ranks_ = 0;
  return std::exchange(next_, JoinOver());
}

}  // namespace smddp
