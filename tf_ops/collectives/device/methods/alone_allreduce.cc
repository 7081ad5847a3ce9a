// A rank that is the only one of its node: no exchange between GPUs, and possibly one between nodes.
#include "collectives/device/methods/device_bucket.h"
#include "collectives/device/methods/methods.h"

namespace smddp {
namespace {

class AloneAllreduceTask : public Task {
 public:
  AloneAllreduceTask(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call)
      : bucket_(context, rail, call) {}

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
      SMDDP_ASSIGN_OR_RETURN(PooledEventPtr end, bucket_.tensors().End());
      SMDDP_RETURN_IF_ERROR(bucket_.tensors().HandBack());
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

TaskPtr AloneAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  return std::make_unique<AloneAllreduceTask>(context, rail, call);
}

}  // namespace smddp
