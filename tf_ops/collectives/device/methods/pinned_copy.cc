#include "collectives/device/methods/pinned_copy.h"

#include <algorithm>

namespace smddp {

PinnedCopy::PinnedCopy(DeviceContext& context, void* device, int64_t elements, DType dtype)
    : context_(context),
      device_(static_cast<std::byte*>(device)),
      elements_(elements),
      dtype_(dtype),
      each_(static_cast<int64_t>(kPartBytes / SizeOf(dtype))) {}

Status PinnedCopy::Start(const PooledEvent& there) {
  const DeviceStream down = context_.streams().down();
  SMDDP_RETURN_IF_ERROR(there.MakeWait(down));
  for (int64_t begin = 0; begin < elements_; begin += each_) {
    const Range range = {begin, std::min(elements_, begin + each_)};
    SMDDP_RETURN_IF_ERROR(context_.While(
        "copying gradients to the host",
        context_.device().Copy(host_.data() + Bytes(begin), device_ + Bytes(begin), Bytes(range.size()), down)));
    SMDDP_ASSIGN_OR_RETURN(PooledEventPtr copied, context_.Mark(down));
    parts_.push_back({range, std::move(copied), range.size()});
  }
  return Status::Ok();
}

template <class Visit>
Status PinnedCopy::ForEachPart(Range range, Visit visit) {
  for (size_t i = range.begin / each_; i < parts_.size() && parts_[i].range.begin < range.end; ++i) {
    SMDDP_RETURN_IF_ERROR(visit(parts_[i]));
  }
  return Status::Ok();
}

Result<bool> PinnedCopy::Ready(Range range) {
  bool ready = true;
  SMDDP_RETURN_IF_ERROR(ForEachPart(range, [&](Part& part) -> Status {
    if (!ready || part.down == nullptr) return Status::Ok();
    const Result<bool> passed = part.down->Passed();
    SMDDP_RETURN_IF_ERROR(context_.While("copying gradients to the host", passed.status()));
    ready = *passed;
    if (ready) part.down = nullptr;
    return Status::Ok();
  }));
  return ready;
}

Status PinnedCopy::Done(Range range) {
  return ForEachPart(range, [&](Part& part) -> Status {
    part.left -= std::min(range.end, part.range.end) - std::max(range.begin, part.range.begin);
    if (part.left > 0) return Status::Ok();
    const size_t offset = Bytes(part.range.begin);
    return context_.While("copying sums to the GPU",
                          context_.device().Copy(device_ + offset, host_.data() + offset, Bytes(part.range.size()),
                                                 context_.streams().up()));
  });
}

Result<PooledEventPtr> PinnedCopy::Finish() {
  SMDDP_ASSIGN_OR_RETURN(PooledEventPtr up, context_.Mark(context_.streams().up()));
  host_.GiveBack(up);
  return up;
}

}  // namespace smddp
