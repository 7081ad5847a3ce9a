// The ranks of a node share one GPU: every reducer sums its shard directly from the others' fusion buffers, and every
// rank unpacks the sums from the buffers in which they were made. Notes say what may be read:
//
//   packed    to the reducers: my bucket is packed (the GPU has done it)
//   summed    to all: the sum of my shard lies in my buffer, where my own part of it was; and I have read yours
//   released  to the reducers whose sums I have unpacked: your buffer may be reused
//
// Sums are taken in the order of the local ranks, as on the CPU.
#include "collectives/device/methods/device_bucket.h"
#include "collectives/device/methods/methods.h"

namespace smddp {
namespace {

constexpr uint16_t kSummedStep = 0, kReleasedStep = 1;

class PeerAllreduceTask : public Task {
 public:
  PeerAllreduceTask(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call)
      : context_(context),
        topology_(context.fabric().topology),
        bucket_(context, rail, call),
        packed_(context.fabric(), {bucket_.operation(), kNodeReduceScatterStage, 0}),
        summed_(context.fabric(), {bucket_.operation(), kNodeAllgatherStage, kSummedStep}),
        released_(context.fabric(), {bucket_.operation(), kNodeAllgatherStage, kReleasedStep}),
        sources_(topology_.local_size()) {}

  Result<Progress> Step() override {
    bool moved = false;
    if (!bucket_.packed()) {
      SMDDP_RETURN_IF_ERROR(Start());
      moved = true;
    }
    SMDDP_RETURN_IF_ERROR(TellPacked(&moved));
    SMDDP_RETURN_IF_ERROR(Sum(&moved));
    SMDDP_RETURN_IF_ERROR(TellSummed(&moved));
    SMDDP_RETURN_IF_ERROR(Collect(&moved));
    SMDDP_ASSIGN_OR_RETURN(const bool done, Release(&moved));
    if (done) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }

  std::string Describe() const override {
    if (sums_begun_ && !bucket_.sums()) return bucket_.Describe();
    if (!packed_.all_here()) return "sum of the node's GPU buffers, " + packed_.Describe();
    if (!summed_.all_here()) return "sums of the node's other ranks, " + summed_.Describe();
    return "release of GPU buffers, " + released_.Describe();
  }

 private:
  int me() const { return topology_.local_rank(); }
  bool reduces(int member) const { return !bucket_.shard_of(member).empty(); }
  template <class Visit>
  Status ForEachOther(Visit visit) const {
    for (int member = 0; member < topology_.local_size(); ++member) {
      if (member != me()) SMDDP_RETURN_IF_ERROR(visit(member));
    }
    return Status::Ok();
  }

  Status Start() {
    SMDDP_RETURN_IF_ERROR(bucket_.Start(bucket_.elements()));
    bucket_.Mark(StageTimes::kNodeReduceScatter);
    Result<PeerNote> note = context_.peers().NoteOf(&bucket_.memory());
    SMDDP_RETURN_IF_ERROR(context_.While("showing gradients to the ranks of the node", note.status()));
    note_ = *note;
    return ForEachOther([this](int member) -> Status {
      if (reduces(me())) {
        SMDDP_RETURN_IF_ERROR(packed_.Expect(member));
        SMDDP_RETURN_IF_ERROR(released_.Expect(member));
      }
      return reduces(member) ? summed_.Expect(member) : Status::Ok();
    });
  }

  Status TellPacked(bool* moved) {
    if (sent_packed_) return Status::Ok();
    SMDDP_ASSIGN_OR_RETURN(sent_packed_, context_.Passed(*bucket_.packed(), "packing gradients"));
    if (!sent_packed_) return Status::Ok();
    *moved = true;
    return ForEachOther([this](int member) { return reduces(member) ? packed_.Send(member, note_) : Status::Ok(); });
  }

  Result<std::byte*> BufferOf(int member, const PeerNote& note) {
    Result<std::byte*> buffer = context_.peers().Open(topology_.node().world_rank(member), note);
    if (!buffer.ok()) return context_.While("reaching the gradients of another rank of the node", buffer.status());
    return buffer;
  }

  Status Sum(bool* moved) {
    if (!reduces(me()) || bucket_.sums()) return Status::Ok();
    if (!sums_begun_) {
      const size_t offset = bucket_.my_shard().begin * SizeOf(bucket_.wire());
      SMDDP_ASSIGN_OR_RETURN(const bool some, packed_.ForEachNew([&](int member, const PeerNote& note) -> Status {
        SMDDP_ASSIGN_OR_RETURN(const std::byte* buffer, BufferOf(member, note));
        sources_[member] = buffer + offset;
        return Status::Ok();
      }));
      *moved |= some;
      if (!packed_.all_here()) return Status::Ok();
      SMDDP_RETURN_IF_ERROR(SumShard());
      sums_begun_ = *moved = true;
    }
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, bucket_.Rail(node_sum_));
    *moved |= progress != Progress::kWaiting;
    if (progress != Progress::kDone) return Status::Ok();
    bucket_.Mark(StageTimes::kNodeAllgather);
    return bucket_.tensors().Unpack(bucket_.my_shard(), bucket_.at(bucket_.my_shard().begin), bucket_.sums().get());
  }

  Status SumShard() {
    const Range mine = bucket_.my_shard();
    const DeviceStream stream = context_.streams().reduce();
    sources_[me()] = bucket_.at(mine.begin);
    SMDDP_RETURN_IF_ERROR(bucket_.packed()->MakeWait(stream));
    SMDDP_RETURN_IF_ERROR(context_.While(
        "summing gradients", context_.device().Sum(bucket_.at(mine.begin), sources_.data(), topology_.local_size(),
                                                   mine.size(), bucket_.wire(), /*non_finite=*/nullptr, stream)));
    SMDDP_ASSIGN_OR_RETURN(node_sum_, context_.Mark(stream));
    bucket_.Mark(StageTimes::kNodeReduceScatter);
    return Status::Ok();
  }

  Status TellSummed(bool* moved) {
    if (sent_summed_ || !bucket_.sums()) return Status::Ok();
    SMDDP_ASSIGN_OR_RETURN(sent_summed_, context_.Passed(*bucket_.sums(), "summing gradients"));
    if (!sent_summed_) return Status::Ok();
    *moved = true;
    return ForEachOther([this](int member) { return summed_.Send(member, note_); });
  }

  Status Collect(bool* moved) {
    if (end_) return Status::Ok();
    SMDDP_ASSIGN_OR_RETURN(const bool some, summed_.ForEachNew([this](int member, const PeerNote& note) -> Status {
      const Range shard = bucket_.shard_of(member);
      SMDDP_ASSIGN_OR_RETURN(const std::byte* buffer, BufferOf(member, note));
      return bucket_.tensors().Unpack(shard, buffer + shard.begin * SizeOf(bucket_.wire()), /*sums=*/nullptr);
    }));
    *moved |= some;
    if (!summed_.all_here() || (reduces(me()) && !bucket_.sums())) return Status::Ok();
    SMDDP_ASSIGN_OR_RETURN(end_, bucket_.tensors().HandBack());
    *moved = true;
    return Status::Ok();
  }

  Result<bool> Release(bool* moved) {
    if (!end_) return false;
    if (!sent_released_) {
      SMDDP_ASSIGN_OR_RETURN(sent_released_, context_.Passed(*end_, "unpacking gradients"));
      if (!sent_released_) return false;
      bucket_.Mark(StageTimes::kNodeAllgather);
      *moved = true;
      SMDDP_RETURN_IF_ERROR(
          ForEachOther([this](int member) { return reduces(member) ? released_.Send(member, note_) : Status::Ok(); }));
    }
    const auto nothing = [](int, const PeerNote&) { return Status::Ok(); };
    SMDDP_ASSIGN_OR_RETURN(const bool some, released_.ForEachNew(nothing));
    *moved |= some;
    if (!released_.all_here()) return false;
    for (PeerNotes* notes : {&packed_, &summed_, &released_}) {
      SMDDP_ASSIGN_OR_RETURN(const bool sent, notes->Sent());
      if (!sent) return false;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool done, bucket_.tensors().HostPiecesDone());
    if (done) bucket_.memory().GiveBack(end_);
    return done;
  }

  DeviceContextImpl& context_;
  const Topology& topology_;
  DeviceBucket bucket_;
  PeerNotes packed_, summed_, released_;
  PeerNote note_;                     // of my buffer
  std::vector<const void*> sources_;  // my shard in all members' buffers, by local rank
  PooledEventPtr node_sum_, end_;
  bool sent_packed_ = false, sums_begun_ = false, sent_summed_ = false, sent_released_ = false;
};

}  // namespace

TaskPtr PeerAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call) {
  return std::make_unique<PeerAllreduceTask>(context, rail, call);
}

}  // namespace smddp
