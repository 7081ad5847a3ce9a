#include "runtime/verify/verify.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/hierarchical_allgather.h"

namespace smddp {
namespace {

class VerifiedTask : public Task {
 public:
  VerifiedTask(const Fabric& fabric, uint32_t operation, VerifiedCall call)
      : fabric_(fabric), operation_(operation), verification_(fabric, std::move(call)) {}

  Status Begin(const Verifier::MakeTask& make_task) {
    verification_.ReadInputs();
    SMDDP_ASSIGN_OR_RETURN(running_, make_task(&verification_.call()));
    return Status::Ok();
  }
  Result<Progress> Step() override {
    if (running_ != nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, running_->Step());
      if (progress != Progress::kDone) return progress;
      running_.reset();
    }
    if (exchanges_) {
      SMDDP_RETURN_IF_ERROR(verification_.Compare(records_));
      return Progress::kDone;
    }
    verification_.ReadOutputs();
    BeginExchange();
    return Progress::kMoved;
  }
  std::string Describe() const override {
    const std::string what = running_ != nullptr ? running_->Describe() : "between two steps";
    return exchanges_ ? "SMDDP_VERIFY, " + what : what;
  }

 private:
  // The operation's own transfers are over, so its tag can be reused: transfers of one pair and tag are matched in
  // order.
  void BeginExchange() {
    exchanges_ = true;
    const std::vector<Reading>& mine = verification_.record();
    records_.resize(mine.size() * fabric_.topology.size());
    std::copy(mine.begin(), mine.end(), records_.begin() + mine.size() * fabric_.topology.rank());
    std::vector<std::vector<BufferView>> blocks;
    for (int rank = 0; rank < fabric_.topology.size(); ++rank) {
      blocks.push_back({{&records_[mine.size() * rank], mine.size() * sizeof(Reading)}});
    }
    running_ = HierarchicalAllgather(fabric_, operation_, blocks);
  }

  const Fabric& fabric_;
  const uint32_t operation_;
  Verification verification_;
  std::vector<Reading> records_;  // of all ranks
  bool exchanges_ = false;        // records are being exchanged
  TaskPtr running_;               // null: nothing to wait for
};

}  // namespace

Result<TaskPtr> Verifier::Begin(std::optional<VerifiedCall> call, uint32_t operation, const MakeTask& make_task) const {
  if (!call) return make_task(nullptr);
  auto task = std::make_unique<VerifiedTask>(fabric_, operation, std::move(*call));
  SMDDP_RETURN_IF_ERROR(task->Begin(make_task));
  return TaskPtr(std::move(task));
}

}  // namespace smddp
