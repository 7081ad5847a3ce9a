// The bucket goes through host memory: packed on the GPU, reduced by the ranks' CPUs while its other parts are copied,
// unpacked on the GPU. On the wire it is the bucket of a rank whose gradients are in host memory, bit for bit.
#include <memory>
#include <optional>

#include "collectives/device/stages.h"
#include "collectives/device/staging.h"
#include "collectives/device/tensors.h"

namespace smddp {
namespace {

class HostStageTask : public Task {
 public:
  HostStageTask(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call)
      : lane_(lane), rail_(rail), call_(call), tensors_(lane, call) {}

  Result<Progress> Step() override {
    bool moved = false;
    if (phase_ == Phase::kStart) {
      SMDDP_RETURN_IF_ERROR(Start());
      phase_ = Phase::kReduce;
      moved = true;
    }
    if (phase_ == Phase::kReduce) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, reduction_->Step());
      if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
      SMDDP_RETURN_IF_ERROR(Finish());
      phase_ = Phase::kHostPieces;
      moved = true;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool done, tensors_.HostPiecesDone());
    if (done) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }

  std::string Describe() const override {
    return reduction_ != nullptr ? reduction_->Describe() : "waiting for the GPU";
  }

 private:
  enum class Phase { kStart, kReduce, kHostPieces };

  Status Start() {
    const FusedView& view = *call_.call.view;
    const DType wire = view.wire();
    const size_t bytes = static_cast<size_t>(view.elements()) * SizeOf(wire);
    SMDDP_ASSIGN_OR_RETURN(packed_, lane_.device_blocks().Take(bytes, lane_.streams().pack()));
    SMDDP_ASSIGN_OR_RETURN(const MomentPtr there, tensors_.Pack(packed_.data()));
    staging_.emplace(lane_, packed_.data(), view.elements(), wire);
    SMDDP_RETURN_IF_ERROR(staging_->Start(*there));
    const bool scaled = IsFloating(view.dtype());  // on the GPU
    const std::vector<Piece> all = {{staging_->host(), staging_->host(), view.elements()}};
    host_view_.emplace(wire, wire, all, scaled ? Scaling() : view.before(), scaled ? Scaling() : view.after(),
                       view.compute());
    FusedCall call = call_.call;
    call.view = &*host_view_;
    call.gate = &*staging_;
    reduction_ = HierarchicalAllreduce(lane_.fabric(), rail_, call, call_.chunking);
    return Status::Ok();
  }

  Status Finish() {
    reduction_ = nullptr;
    SMDDP_ASSIGN_OR_RETURN(const MomentPtr sums, staging_->Finish());
    SMDDP_RETURN_IF_ERROR(tensors_.Unpack({0, call_.call.view->elements()}, packed_.data(), sums.get()));
    SMDDP_ASSIGN_OR_RETURN(MomentPtr end, tensors_.HandBack());
    packed_.GiveBack(std::move(end));
    return Status::Ok();
  }

  Lane& lane_;
  const AllreduceAlgorithm& rail_;
  const DeviceCall call_;
  DeviceTensors tensors_;
  Memory packed_;
  std::optional<Staging> staging_;
  std::optional<FusedView> host_view_;
  TaskPtr reduction_;  // refers to the two before it
  Phase phase_ = Phase::kStart;
};

}  // namespace

TaskPtr HostStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  return std::make_unique<HostStageTask>(lane, rail, call);
}

}  // namespace smddp
