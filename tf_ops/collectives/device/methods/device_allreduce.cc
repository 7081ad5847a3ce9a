// A bucket on a GPU is packed there, reduced by the session's method, and unpacked there:
//
//   kAll    NCCL's allreduce among all ranks
//   kNode   NCCL's reduce-scatter in the node, the exchange of my slice between nodes by the CPUs, NCCL's allgather.
//           The buffer holds one part of equal length for each member. On a node with more ranks than rails, some
//           members reduce nothing: their parts lie behind the bucket, and their contents are ignored.
//   kHost   all of it by the CPUs while other parts of it are copied. The messages are identical, bit for bit, to those
//           of a rank whose gradients are in host memory.
//
// The task ends only when the GPU has completed it, for three reasons: a missing rank blocks NCCL's kernels for ever,
// and only tasks under way are watched; if a rank dies, the program must get the error before it uses what an aborted
// NCCL leaves; and the framework's next work must not wait for what depends on other ranks.
#include <optional>

#include "collectives/device/device_context.h"
#include "collectives/device/methods/pinned_copy.h"
#include "collectives/device/methods/tensors.h"
#include "core/slice.h"

namespace smddp {
namespace {

class DeviceAllreduceTask : public Task {
 public:
  // With kNode or kAll and without a group, this rank is alone in it.
  DeviceAllreduceTask(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call,
                      DeviceMethod method)
      : context_(context),
        rail_(rail),
        call_(call),
        method_(method),
        calls_(method == DeviceMethod::kHost ? nullptr : context.calls()),
        each_(Slice(0).size()),
        tensors_(context, call_) {}

  // Runs the phases in order.
  Result<Progress> Step() override {
    if (calls_ != nullptr) SMDDP_RETURN_IF_ERROR(context_.While("NCCL", calls_->Check()));
    for (bool moved = false;; moved = true) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, Pass());
      if (progress != Progress::kDone) {
        Mark();
        return moved ? Progress::kMoved : progress;
      }
      if (phase_ == Phase::kOnGpu) return Progress::kDone;
      phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
    }
  }

  std::string Describe() const override {
    if (calls_ != nullptr && (phase_ == Phase::kReduce || phase_ == Phase::kGather)) return calls_->Describe();
    return exchange_ != nullptr ? exchange_->Describe() : "waiting for the GPU";
  }

 private:
  enum class Phase { kStart, kReduce, kExchange, kGather, kOnGpu };

  const FusedView& view() const { return *call_.call.view; }
  int64_t elements() const { return view().elements(); }
  const Topology& topology() const { return context_.fabric().topology; }
  std::byte* at(int64_t element) const { return memory_.data() + element * SizeOf(view().wire()); }
  GroupCalls::Key Key(Phase phase) const {
    return NcclCallOrder::KeyOf(call_.call.operation, phase == Phase::kGather ? 1 : 0);
  }
  bool gathers() const { return method_ == DeviceMethod::kNode && calls_ != nullptr; }
  // The part of the bucket that local rank `member` sums with kNode; empty for ranks that are not reducers.
  Range Slice(int member) const {
    const int reducers = topology().rail_count();
    if (member >= reducers) return {elements(), elements()};
    return SliceOf(elements(), SizeOf(view().wire()), reducers, member);
  }
  // What the CPUs reduce.
  Range Exchanged() const {
    if (method_ == DeviceMethod::kHost) return {0, elements()};
    const bool crosses_nodes = method_ == DeviceMethod::kNode && topology().node_count() > 1;
    return crosses_nodes ? Slice(topology().local_rank()) : Range{0, 0};
  }

  // kDone: the next phase may begin.
  Result<Progress> Pass() {
    if (phase_ == Phase::kStart) return Start();
    if (phase_ == Phase::kReduce) return Made(calls_ != nullptr);
    if (phase_ == Phase::kExchange) return Exchange();
    return phase_ == Phase::kGather ? Gathered() : Ended();
  }

  // All memory that it needs, before its first call of NCCL. False: there is not all of it yet (BufferPool).
  Result<bool> Reserve() {
    const size_t room = (gathers() ? each_ * topology().local_size() : elements()) * SizeOf(view().wire());
    SMDDP_ASSIGN_OR_RETURN(bool there, context_.device_buffers().Take(&memory_, room, context_.streams().pack()));
    if (!there) return false;
    SMDDP_ASSIGN_OR_RETURN(there, tensors_.Reserve());
    const Range range = Exchanged();
    if (!there || range.empty()) return there;
    if (!pinned_copy_) pinned_copy_.emplace(context_, at(range.begin), range.size(), view().wire());
    return pinned_copy_->Reserve();
  }

  Result<Progress> Start() {
    SMDDP_ASSIGN_OR_RETURN(const bool reserved, Reserve());
    if (!reserved) return Progress::kWaiting;
    SMDDP_ASSIGN_OR_RETURN(sums_, tensors_.Pack(memory_.data()));
    if (calls_ == nullptr) return Progress::kDone;
    GroupCall call = {GroupCall::Kind::kAllreduce, at(0), at(0), elements(), view().wire()};
    if (gathers()) call = {GroupCall::Kind::kReduceScatter, Mine(), at(0), each_, view().wire()};
    SMDDP_RETURN_IF_ERROR(calls_->Submit(Key(phase_), call, sums_));
    return Progress::kDone;
  }

  // With kNode: my part of the buffer.
  std::byte* Mine() const { return at(each_ * topology().local_rank()); }

  // Has NCCL put this phase's call on its stream? Where there is one.
  Result<Progress> Made(bool called) {
    if (!called) return Progress::kDone;
    Result<PooledEventPtr> made = calls_->Made(Key(phase_));
    SMDDP_RETURN_IF_ERROR(context_.While("NCCL", made.status()));
    if (*made == nullptr) return Progress::kWaiting;
    sums_ = std::move(*made);
    return Progress::kDone;
  }

  // In pinned memory.
  Result<Progress> Exchange() {
    const Range range = Exchanged();
    if (!range.empty()) {
      if (exchange_ == nullptr) SMDDP_RETURN_IF_ERROR(BeginExchange(range));
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, exchange_->Step());
      if (progress != Progress::kDone) return progress;
      exchange_ = nullptr;
      SMDDP_ASSIGN_OR_RETURN(sums_, pinned_copy_->Finish());
    }
    if (!gathers()) return Progress::kDone;
    SMDDP_RETURN_IF_ERROR(
        calls_->Submit(Key(Phase::kGather), {GroupCall::Kind::kAllgather, at(0), Mine(), each_, view().wire()}, sums_));
    return Progress::kDone;
  }

  Status BeginExchange(Range range) {
    const DType wire = view().wire();
    SMDDP_RETURN_IF_ERROR(pinned_copy_->Start(*sums_));
    if (method_ == DeviceMethod::kNode) {
      exchange_ = InChunks(context_.fabric(), range.size(), wire, [this](int index, Range chunk) {
        return Gated(*pinned_copy_, chunk, [this, index, chunk] { return Chunk(index, chunk); });
      });
      return Status::Ok();
    }
    const bool scaled = IsFloating(view().dtype());  // on the GPU
    const std::vector<Piece> all = {{pinned_copy_->host(), pinned_copy_->host(), range.size()}};
    host_view_.emplace(wire, wire, all, scaled ? Scaling() : view().before(), scaled ? Scaling() : view().after(),
                       view().compute());
    FusedCall call = call_.call;
    call.view = &*host_view_;
    call.gate = &*pinned_copy_;
    exchange_ = HierarchicalAllreduce(context_.fabric(), rail_, call);
    return Status::Ok();
  }

  // One chunk of my slice.
  TaskPtr Chunk(int index, Range range) {
    const Fabric& fabric = context_.fabric();
    const size_t each = SizeOf(view().wire());
    const BufferView chunk(pinned_copy_->host() + range.begin * each, range.size() * each);
    RailCall call = {call_.call.operation, static_cast<uint16_t>(index), chunk, range.size(), view().wire(),
                     call_.call.op};
    if (call_.call.errors != nullptr) call.errors = call_.call.errors->Of(index, range.size());
    return rail_.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.transport, fabric.compute, call);
  }

  Result<Progress> Gathered() {
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, Made(gathers()));
    if (progress != Progress::kDone) return progress;
    SMDDP_ASSIGN_OR_RETURN(end_, tensors_.Unpack(at(0), *sums_));
    memory_.GiveBack(end_);
    return Progress::kDone;
  }

  // Has the GPU completed it? An error would be reported by NCCL.
  Result<Progress> Ended() {
    SMDDP_ASSIGN_OR_RETURN(bool ended, end_->Passed());
    if (ended && calls_ != nullptr) {
      const Result<bool> healthy = calls_->Healthy();
      SMDDP_RETURN_IF_ERROR(context_.While("NCCL", healthy.status()));
      ended = *healthy;
    }
    if (!ended) return Progress::kWaiting;
    SMDDP_RETURN_IF_ERROR(tensors_.HandBack());
    return Progress::kDone;
  }

  // That this phase takes time. With kHost the exchange records its own stages.
  void Mark() const {
    constexpr StageTimes::Stage kStages[] = {StageTimes::kNodeReduceScatter, StageTimes::kNodeReduceScatter,
                                             StageTimes::kRailAllreduce, StageTimes::kNodeAllgather,
                                             StageTimes::kNodeAllgather};
    if (call_.call.times == nullptr || method_ == DeviceMethod::kHost) return;
    call_.call.times->Mark(kStages[static_cast<int>(phase_)]);
  }

  DeviceContext& context_;
  const AllreduceAlgorithm& rail_;
  const DeviceCall call_;
  const DeviceMethod method_;
  GroupCalls* const calls_;
  const int64_t each_;  // elements of a part
  DeviceTensors tensors_;
  BufferLease memory_;
  Phase phase_ = Phase::kStart;
  PooledEventPtr sums_, end_;  // the sums so far are there; all is done
  std::optional<PinnedCopy> pinned_copy_;
  std::optional<FusedView> host_view_;
  TaskPtr exchange_;  // refers to the two before it
};

}  // namespace

TaskPtr DeviceAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  const FusedView& view = *call.call.view;
  const bool floating = IsFloating(view.dtype());
  bool on_device = false;
  for (const auto& work : call.works) on_device |= work != nullptr;
  DeviceMethod method = call.through_host ? DeviceMethod::kHost : context.method();
  // With kNode the sums between nodes are the rail's, and may be rounded.
  const bool summed_by_nccl = call.call.op == ReduceOp::kSum && floating && IsFloating(view.wire()) &&
                              (rail.exact || method == DeviceMethod::kNode);
  if (!summed_by_nccl) method = DeviceMethod::kHost;
  if ((method == DeviceMethod::kHost && !on_device) || view.elements() == 0) {
    return HierarchicalAllreduce(context.fabric(), rail, call.call);
  }
  if (context.fabric().topology.size() == 1 && floating) method = DeviceMethod::kAll;  // nobody to reduce with
  return std::make_unique<DeviceAllreduceTask>(context, rail, call, method);
}

}  // namespace smddp
