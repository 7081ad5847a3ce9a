#include "collectives/task.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace smddp {
namespace {

class SequenceTask : public Task {
 public:
  explicit SequenceTask(std::vector<TaskFactory> stages) : stages_(std::move(stages)) {}

  Result<Progress> Step() override {
    bool moved = false;
    while (true) {
      if (current_ == nullptr) {
        if (next_ == stages_.size()) return Progress::kDone;
        SMDDP_ASSIGN_OR_RETURN(current_, stages_[next_++]());
        continue;
      }
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, current_->Step());
      if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
      current_ = nullptr;
      moved = true;
    }
  }
  std::string Describe() const override { return current_ != nullptr ? current_->Describe() : "about to start"; }

 private:
  std::vector<TaskFactory> stages_;
  size_t next_ = 0;
  TaskPtr current_;
};

class ParallelTask : public Task {
 public:
  explicit ParallelTask(std::vector<TaskPtr> branches) : running_(std::move(branches)) {}

  Result<Progress> Step() override {
    bool moved = false;
    for (auto at = running_.begin(); at != running_.end();) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, (*at)->Step());
      moved |= progress != Progress::kWaiting;
      at = progress == Progress::kDone ? running_.erase(at) : std::next(at);
    }
    if (running_.empty()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  std::string Describe() const override { return running_.empty() ? "done" : running_.front()->Describe(); }

 private:
  std::vector<TaskPtr> running_;
};

class RepeatTask : public Task {
 public:
  RepeatTask(std::string name, std::function<Result<Progress>()> step)
      : name_(std::move(name)), step_(std::move(step)) {}

  Result<Progress> Step() override { return step_(); }
  std::string Describe() const override { return name_; }

 private:
  const std::string name_;
  const std::function<Result<Progress>()> step_;
};

class PipelineTask : public Task {
 public:
  PipelineTask(int fragments, int window, std::function<TaskPtr(int)> fragment)
      : fragments_(fragments), window_(window), fragment_(std::move(fragment)) {}

  Result<Progress> Step() override {
    bool moved = false;
    for (; next_ < fragments_ && next_ - first_ < window_; ++next_) running_.push_back(fragment_(next_));
    for (TaskPtr& fragment : running_) {
      if (fragment == nullptr) continue;  // done, but an earlier one is not
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, fragment->Step());
      moved |= progress != Progress::kWaiting;
      if (progress == Progress::kDone) fragment.reset();
    }
    for (; !running_.empty() && running_.front() == nullptr; ++first_) running_.pop_front();
    if (first_ == fragments_) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  std::string Describe() const override {
    const std::string where = "piece " + std::to_string(first_ + 1) + " of " + std::to_string(fragments_);
    return running_.empty() ? where : where + ", " + running_.front()->Describe();
  }

 private:
  const int fragments_, window_;
  const std::function<TaskPtr(int)> fragment_;
  int first_ = 0, next_ = 0;     // the oldest that is not done; the next to start
  std::deque<TaskPtr> running_;  // fragments first_ ... next_ - 1; null: done
};

}  // namespace

TaskPtr Sequence(std::vector<TaskFactory> stages) { return std::make_unique<SequenceTask>(std::move(stages)); }

TaskPtr Parallel(std::vector<TaskPtr> branches) { return std::make_unique<ParallelTask>(std::move(branches)); }

TaskPtr Repeat(std::string name, std::function<Result<Progress>()> step) {
  return std::make_unique<RepeatTask>(std::move(name), std::move(step));
}

TaskPtr InSteps(std::string name, int64_t count, int64_t at_once, std::function<void(Range)> visit) {
  return Repeat(std::move(name), [count, at_once, visit = std::move(visit), done = int64_t{0}]() mutable {
    const int64_t end = std::min(count, done + at_once);
    if (done < end) visit({done, end});
    done = end;
    return done == count ? Progress::kDone : Progress::kMoved;
  });
}

TaskPtr Copy(BufferView into, const void* from) {
  constexpr int64_t kPieceBytes = 16 << 20;
  if (into.size == 0 || into.data == from) return nullptr;
  const auto copy = [to = into.data, from = static_cast<const std::byte*>(from)](Range range) {
    std::memcpy(to + range.begin, from + range.begin, range.size());
  };
  return InSteps("copying on this rank", static_cast<int64_t>(into.size), kPieceBytes, copy);
}

TaskPtr Until(std::string name, std::function<Result<bool>()> done) {
  return Repeat(std::move(name), [done = std::move(done)]() -> Result<Progress> {
    SMDDP_ASSIGN_OR_RETURN(const bool is_done, done());
    return is_done ? Progress::kDone : Progress::kWaiting;
  });
}

TaskPtr Pipeline(int fragments, int window, std::function<TaskPtr(int)> fragment) {
  return std::make_unique<PipelineTask>(fragments, window, std::move(fragment));
}

}  // namespace smddp
