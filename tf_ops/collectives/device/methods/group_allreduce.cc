// Every rank of a node has its own GPU: NCCL's reduce-scatter, the exchange between nodes for my shard, NCCL's
// allgather. On one node all of it is put on streams at once, and the frameworks' streams wait for it. The task still
// ends only when the GPU has completed it, for two reasons: a missing rank blocks NCCL's kernels for ever, and only
// tasks under way are watched; and if a rank dies, the program must get the error before it uses what an aborted NCCL
// leaves.
//
// The buffer holds one part of equal length for each member. On a node with more ranks than rails, some members
// reduce nothing: their parts lie behind the bucket, and their contents are ignored.
#include "collectives/device/methods/device_bucket.h"
#include "collectives/device/methods/methods.h"
#include "collectives/device/nccl_call_order.h"

namespace smddp {
namespace {

class GroupAllreduceTask : public Task {
 public:
  GroupAllreduceTask(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call)
      : context_(context),
        topology_(context.fabric().topology),
        bucket_(context, rail, call),
        each_(bucket_.shard_of(0).size()),
        scatter_(NcclCallOrder::KeyOf(bucket_.operation(), 0)),
        gather_(crosses_nodes() ? NcclCallOrder::KeyOf(bucket_.operation(), 1) : scatter_) {}

  // Runs the phases in order; each returns false while it cannot complete.
  Result<Progress> Step() override {
    SMDDP_RETURN_IF_ERROR(context_.CheckGroup());
    const Phase before = phase_;
    bool moved = false;
    while (phase_ != Phase::kDone) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, Pass());
      moved |= progress != Progress::kWaiting;
      if (progress != Progress::kDone) break;
      phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
    }
    if (phase_ == Phase::kDone) return Progress::kDone;
    return moved || phase_ != before ? Progress::kMoved : Progress::kWaiting;
  }

  std::string Describe() const override {
    if (phase_ == Phase::kScatterTurn || phase_ == Phase::kGatherTurn) {
      return "waiting for " + context_.call_order().Describe();
    }
    return phase_ == Phase::kScatter || phase_ == Phase::kGather ? "waiting for NCCL" : bucket_.Describe();
  }

 private:
  enum class Phase { kStart, kScatterTurn, kScatter, kRail, kGatherTurn, kGather, kOnGpu, kHostPieces, kDone };

  bool crosses_nodes() const { return topology_.node_count() > 1; }
  std::byte* part(int member) const { return bucket_.at(each_ * member); }
  DeviceStream stream() const { return context_.streams().reduce(); }

  // kDone: the next phase may begin.
  Result<Progress> Pass() {
    switch (phase_) {
      case Phase::kStart:
        return Go(Start());
      case Phase::kScatterTurn:
        return GoIf(context_.call_order().Has(scatter_), [this] { return Scatter(); });
      case Phase::kScatter:
        return GoIf(context_.GroupReady(), [this] { return EndScatter(); });
      case Phase::kRail:
        return Rail();
      case Phase::kGatherTurn:
        return GoIf(context_.call_order().Has(gather_), [this] { return Gather(); });
      case Phase::kGather:
        return GoIf(context_.GroupReady(), [this] { return EndGather(); });
      case Phase::kOnGpu:
        return GoIf(Ended(), [this] {
          bucket_.Mark(StageTimes::kNodeAllgather);
          return bucket_.tensors().HandBack();
        });
      case Phase::kHostPieces:
      case Phase::kDone:
        break;
    }
    return GoIf(bucket_.tensors().HostPiecesDone(), [] { return Status::Ok(); });
  }

  static Result<Progress> Go(const Status& status) {
    if (!status.ok()) return status;
    return Progress::kDone;
  }
  template <class Next>
  static Result<Progress> GoIf(const Result<bool>& may, Next next) {
    if (!may.ok()) return may.status();
    return *may ? Go(next()) : Result<Progress>(Progress::kWaiting);
  }

  Status Start() {
    SMDDP_RETURN_IF_ERROR(bucket_.Start(each_ * topology_.local_size()));
    bucket_.Mark(StageTimes::kNodeReduceScatter);
    return context_.call_order().Want(scatter_);
  }

  Status Scatter() {
    SMDDP_RETURN_IF_ERROR(bucket_.packed()->MakeWait(stream()));
    return context_.While("NCCL's reduce-scatter", context_.group().ReduceScatter(part(topology_.local_rank()), part(0),
                                                                                  each_, bucket_.wire(), stream()));
  }

  Status EndScatter() {
    SMDDP_ASSIGN_OR_RETURN(node_sum_, context_.Mark(stream()));
    bucket_.Mark(StageTimes::kNodeReduceScatter);
    if (crosses_nodes()) context_.call_order().Finish(scatter_);  // else the turn continues
    return Status::Ok();
  }

  Result<Progress> Rail() {
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, bucket_.Rail(node_sum_));
    if (progress == Progress::kDone && crosses_nodes()) SMDDP_RETURN_IF_ERROR(context_.call_order().Want(gather_));
    return progress;
  }

  Status Gather() {
    bucket_.Mark(StageTimes::kNodeAllgather);
    SMDDP_RETURN_IF_ERROR(bucket_.sums()->MakeWait(stream()));
    return context_.While("NCCL's allgather", context_.group().Allgather(part(0), part(topology_.local_rank()), each_,
                                                                         bucket_.wire(), stream()));
  }

  Status EndGather() {
    context_.call_order().Finish(gather_);
    SMDDP_ASSIGN_OR_RETURN(const PooledEventPtr gathered, context_.Mark(stream()));
    SMDDP_RETURN_IF_ERROR(bucket_.tensors().Unpack({0, bucket_.elements()}, part(0), gathered.get()));
    SMDDP_ASSIGN_OR_RETURN(end_, bucket_.tensors().End());
    bucket_.memory().GiveBack(end_);
    return Status::Ok();
  }

  // Has the GPU completed it? An error would be reported by NCCL.
  Result<bool> Ended() const {
    SMDDP_ASSIGN_OR_RETURN(const bool passed, end_->Passed());
    return passed ? context_.GroupHealthy() : Result<bool>(false);
  }

  DeviceContext& context_;
  const Topology& topology_;
  DeviceBucket bucket_;
  const int64_t each_;  // elements of a part
  const NcclCallOrder::Key scatter_, gather_;
  Phase phase_ = Phase::kStart;
  PooledEventPtr node_sum_, end_;
};

}  // namespace

TaskPtr GroupAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  return std::make_unique<GroupAllreduceTask>(context, rail, call);
}

}  // namespace smddp
