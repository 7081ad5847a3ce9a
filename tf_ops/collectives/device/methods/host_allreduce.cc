// The bucket goes through host memory: it is packed on the GPU, reduced by the ranks' CPUs while other parts of it
// are copied, and unpacked on the GPU. The messages are identical, bit for bit, to those of a rank whose gradients
// are in host memory.
#include <memory>
#include <optional>

#include "collectives/device/methods/methods.h"
#include "collectives/device/methods/pinned_copy.h"
#include "collectives/device/methods/tensors.h"

namespace smddp {
namespace {

class HostAllreduceTask : public Task {
 public:
  HostAllreduceTask(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call)
      : context_(context), rail_(rail), call_(call), tensors_(context, call) {}

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
    SMDDP_ASSIGN_OR_RETURN(packed_, context_.device_buffers().Take(bytes, context_.streams().pack()));
    SMDDP_ASSIGN_OR_RETURN(const PooledEventPtr there, tensors_.Pack(packed_.data()));
    pinned_copy_.emplace(context_, packed_.data(), view.elements(), wire);
    SMDDP_RETURN_IF_ERROR(pinned_copy_->Start(*there));
    const bool scaled = IsFloating(view.dtype());  // on the GPU
    const std::vector<Piece> all = {{pinned_copy_->host(), pinned_copy_->host(), view.elements()}};
    host_view_.emplace(wire, wire, all, scaled ? Scaling() : view.before(), scaled ? Scaling() : view.after(),
                       view.compute());
    FusedCall call = call_.call;
    call.view = &*host_view_;
    call.gate = &*pinned_copy_;
    reduction_ = HierarchicalAllreduce(context_.fabric(), rail_, call);
    return Status::Ok();
  }

  Status Finish() {
    reduction_ = nullptr;
    SMDDP_ASSIGN_OR_RETURN(const PooledEventPtr sums, pinned_copy_->Finish());
    SMDDP_RETURN_IF_ERROR(tensors_.Unpack({0, call_.call.view->elements()}, packed_.data(), sums.get()));
    SMDDP_ASSIGN_OR_RETURN(PooledEventPtr end, tensors_.End());
    SMDDP_RETURN_IF_ERROR(tensors_.HandBack());
    packed_.GiveBack(std::move(end));
    return Status::Ok();
  }

  DeviceContext& context_;
  const AllreduceAlgorithm& rail_;
  const DeviceCall call_;
  DeviceTensors tensors_;
  BufferLease packed_;
  std::optional<PinnedCopy> pinned_copy_;
  std::optional<FusedView> host_view_;
  TaskPtr reduction_;  // refers to the two before it
  Phase phase_ = Phase::kStart;
};

}  // namespace

TaskPtr HostAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  return std::make_unique<HostAllreduceTask>(context, rail, call);
}

}  // namespace smddp
