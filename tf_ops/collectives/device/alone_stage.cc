// A rank that is the only one of its node: there is nothing to do between GPUs, and between nodes maybe.
#include "collectives/device/device_bucket.h"
#include "collectives/device/stages.h"

namespace smddp {
namespace {

class AloneStageTask : public Task {
 public:
  AloneStageTask(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call) : bucket_(lane, rail, call) {}

  Result<Progress> Step() override {
    bool moved = false;
    if (!bucket_.packed()) {
      SMDDP_RETURN_IF_ERROR(bucket_.Start(bucket_.elements()));
      moved = true;
    }
    if (!unpacked_) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, bucket_.Rail(bucket_.packed()));
      if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
      SMDDP_RETURN_IF_ERROR(bucket_.tensors().Unpack({0, bucket_.elements()}, bucket_.at(0), bucket_.sums().get()));
      SMDDP_ASSIGN_OR_RETURN(MomentPtr end, bucket_.tensors().HandBack());
      bucket_.memory().GiveBack(std::move(end));
      unpacked_ = moved = true;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool done, bucket_.tensors().HostPiecesDone());
    if (done) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  std::string Describe() const override { return bucket_.Describe(); }

 private:
  DeviceBucket bucket_;
  bool unpacked_ = false;
};

}  // namespace

TaskPtr AloneStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  return std::make_unique<AloneStageTask>(lane, rail, call);
}

}  // namespace smddp
