#include "collectives/device/methods/tensors.h"

#include <cstring>
#include <set>

namespace smddp {
namespace {

constexpr size_t kPieceAlignment = 256;

}  // namespace

DeviceTensors::DeviceTensors(DeviceContext& context, const DeviceCall& call)
    : context_(context), view_(*call.call.view), works_(call.works) {
  context_.Enter();
}

DeviceTensors::~DeviceTensors() {
  context_.Leave();
  if (!begun_ || handed_back_) return;
  for (const DeviceStream stream : {context_.streams().pack(), context_.streams().unpack()}) {
    const Result<PooledEventPtr> last = context_.Mark(stream);
    if (!last.ok()) continue;
    (void)HandBackAfter(**last);
  }
}

Result<bool> DeviceTensors::Reserve() {
  const std::vector<Piece>& pieces = view_.pieces();
  if (works_.size() != pieces.size()) {
    return Status(Reason::kInternal, "Expected the order of ", pieces.size(), " pieces; received ", works_.size(), ".");
  }
  size_t bytes = 0;
  host_pieces_.clear();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (works_[i] != nullptr) continue;
    const size_t here = static_cast<size_t>(pieces[i].elements) * SizeOf(view_.dtype());
    host_pieces_.push_back({i, bytes, here});
    bytes += (here + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  }
  if (host_pieces_.empty()) return true;
  SMDDP_ASSIGN_OR_RETURN(const bool pinned, context_.pinned_buffers().Take(&host_, bytes, std::nullopt));
  return pinned ? context_.device_buffers().Take(&scratch_, bytes, context_.streams().pack()) : false;
}

// Lets the view point to their copies on the device.
Status DeviceTensors::BringHostPieces(std::vector<Piece>* pieces) {
  for (const HostPiece& host : host_pieces_) {
    Piece& piece = (*pieces)[host.index];
    std::byte* const pinned = host_.data() + host.offset;
    std::byte* const place = scratch_.data() + host.offset;
    std::memcpy(pinned, piece.input, host.bytes);
    piece.input = place;
    if (piece.output != nullptr) piece.output = place;
    SMDDP_RETURN_IF_ERROR(context_.device().Copy(place, pinned, host.bytes, context_.streams().pack()));
  }
  return Status::Ok();
}

Result<PooledEventPtr> DeviceTensors::Pack(void* into) {
  begun_ = true;
  const DeviceStream stream = context_.streams().pack();
  std::set<const PooledEvent*> waits;
  for (const auto& work : works_) {
    if (work == nullptr || !waits.insert(work.get()).second) continue;
    SMDDP_RETURN_IF_ERROR(context_.While("waiting for gradients", work->MakeWait(stream)));
  }
  std::vector<Piece> pieces = view_.pieces();
  SMDDP_RETURN_IF_ERROR(context_.While("copying gradients from host memory", BringHostPieces(&pieces)));
  // The GPU scales floating types only; other types are scaled on their way through host memory.
  const bool scales = IsFloating(view_.dtype());
  all_ = std::make_unique<FusedView>(view_.dtype(), view_.wire(), pieces, scales ? view_.before() : Scaling(),
                                     scales ? view_.after() : Scaling(), view_.compute());
  SMDDP_RETURN_IF_ERROR(
      context_.While("packing gradients", context_.device().Pack(*all_, {0, all_->elements()}, into, stream)));
  return context_.Mark(stream);
}

// Once for each of the framework's streams.
Status DeviceTensors::HandBackAfter(const PooledEvent& event) const {
  std::set<DeviceStream> streams;
  for (const auto& work : works_) {
    if (work == nullptr || !streams.insert(work->stream()).second) continue;
    SMDDP_RETURN_IF_ERROR(event.MakeWait(work->stream()));
  }
  return Status::Ok();
}

Result<PooledEventPtr> DeviceTensors::Unpack(const void* from, const PooledEvent& sums) {
  const DeviceStream stream = context_.streams().unpack();
  SMDDP_RETURN_IF_ERROR(sums.MakeWait(stream));
  SMDDP_RETURN_IF_ERROR(
      context_.While("unpacking gradients", context_.device().Unpack(*all_, {0, all_->elements()}, from, stream)));
  for (const HostPiece& piece : host_pieces_) {
    if (view_.pieces()[piece.index].output == nullptr) continue;
    SMDDP_RETURN_IF_ERROR(context_.While(
        "copying gradients to host memory",
        context_.device().Copy(host_.data() + piece.offset, scratch_.data() + piece.offset, piece.bytes, stream)));
  }
  SMDDP_ASSIGN_OR_RETURN(end_, context_.Mark(stream));
  if (scratch_.held()) scratch_.GiveBack(end_);
  return end_;
}

Status DeviceTensors::HandBack() {
  SMDDP_RETURN_IF_ERROR(context_.While("handing gradients back", HandBackAfter(*end_)));
  handed_back_ = true;
  for (const HostPiece& piece : host_pieces_) {
    void* const output = view_.pieces()[piece.index].output;
    if (output != nullptr) std::memcpy(output, host_.data() + piece.offset, piece.bytes);
  }
  if (host_.held()) host_.GiveBack(nullptr);
  return Status::Ok();
}

}  // namespace smddp
