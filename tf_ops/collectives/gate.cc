#include "collectives/gate.h"

namespace smddp {
namespace {

class GatedTask : public Task {
 public:
  GatedTask(ChunkGate& gate, Range range, TaskFactory work) : gate_(gate), range_(range), work_(std::move(work)) {}

  Result<Progress> Step() override {
    bool moved = false;
    if (task_ == nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const bool ready, gate_.Ready(range_));
      if (!ready) return Progress::kWaiting;
      task_ = work_();
      moved = true;
    }
    if (task_ != nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, task_->Step());
      if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
    }
    SMDDP_RETURN_IF_ERROR(gate_.Done(range_));
    return Progress::kDone;
  }
  std::string Describe() const override { return task_ != nullptr ? task_->Describe() : "waiting for the GPU"; }

 private:
  ChunkGate& gate_;
  const Range range_;
  const TaskFactory work_;
  TaskPtr task_;
};

}  // namespace

TaskPtr Gated(ChunkGate& gate, Range range, TaskFactory work) {
  return std::make_unique<GatedTask>(gate, range, std::move(work));
}

}  // namespace smddp
