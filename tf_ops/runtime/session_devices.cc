#include "runtime/session_devices.h"

#include <utility>

#include "core/log.h"

namespace smddp {
namespace {

const DeviceWork* FirstWork(const std::vector<TensorRef>& tensors) {
  for (const TensorRef& tensor : tensors) {
    if (tensor.device != nullptr) return tensor.device.get();
  }
  return nullptr;
}

}  // namespace

Status SessionDevices::MakeLane(Device& device) {
  if (lane_ != nullptr) return Status::Ok();
  if (ended_) return Status(Code::kAborted, "The session has ended.");
  SMDDP_ASSIGN_OR_RETURN(lane_, MakeDeviceLane(fabric_, device));
  return Status::Ok();
}

Result<DeviceLane*> SessionDevices::LaneFor(const std::vector<TensorRef>& tensors) {
  for (const TensorRef& tensor : tensors) {
    if (tensor.device == nullptr) continue;
    SMDDP_RETURN_IF_ERROR(MakeLane(tensor.device->device()));
    const DeviceInfo& mine = lane_->device().info();
    const DeviceInfo& its = tensor.device->device().info();
    if (its.index == mine.index) continue;
    return Status(Code::kInvalidArgument,
                  "Rank " + std::to_string(fabric_.topology.global_rank(fabric_.topology.rank())) +
                      " brings tensors from GPU " + std::to_string(its.index) + " and from GPU " +
                      std::to_string(mine.index) +
                      ". A rank uses one GPU: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU').");
  }
  return lane_.get();
}

Result<std::string> SessionDevices::CardFor(const std::vector<TensorRef>& tensors) {
  DeviceCard card;
  card.wanted = wanted_;
  const DeviceWork* const work = FirstWork(tensors);
  if (work == nullptr) return Encode(card);
  SMDDP_RETURN_IF_ERROR(LaneFor(tensors).status());
  card.has_device = true;
  card.visible = devices_.Count();
  card.device = work->device().info();
  card.direct = direct_ == "on" || (direct_ == "auto" && fabric_.world.takes_device_memory());
  Status why;
  DeviceGroupLibrary* const groups = wanted_ == "ipc" ? nullptr : devices_.groups(&why);
  if (groups == nullptr) {
    card.why_no_group = why.message();
    return Encode(card);
  }
  card.group_version = groups->version();
  if (fabric_.topology.local_rank() == 0 && lane_->stage() == DeviceStage::kHost) {
    SMDDP_ASSIGN_OR_RETURN(card.group_id, groups->MakeId());
  }
  return Encode(card);
}

Result<DeviceStage> SessionDevices::Decide(const std::vector<std::string>& texts) {
  std::vector<DeviceCard> cards(texts.size());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    cards[rank].wanted = wanted_;
    if (texts[rank].empty() || Decode(texts[rank], &cards[rank])) continue;
    return Status(Code::kInternal, "Rank " + std::to_string(fabric_.topology.global_rank(static_cast<int>(rank))) +
                                       " described its GPU in a way that cannot be read. Do all ranks run the same "
                                       "version of smddp_tf?");
  }
  SMDDP_ASSIGN_OR_RETURN(const DeviceDecision decision, smddp::Decide(fabric_.topology, cards));
  if (fabric_.topology.rank() == 0) {
    for (const std::string& warning : decision.warnings) Log(LogLevel::kWarning, warning);
  }
  if (decision.stage != DeviceStage::kHost && lane_ == nullptr) {
    return Status(Code::kInternal, "Rank 0 says that this rank has gradients on a GPU, which it has not.");
  }
  Log(LogLevel::kInfo, std::string("gradients on GPUs take the way '") + NameOf(decision.stage) + "'" +
                           (decision.direct ? ", and between nodes from GPU to GPU" : ""));
  if (decision.stage == DeviceStage::kHost || lane_->stage() == decision.stage) return decision.stage;
  if (decision.direct && !fabric_.world.takes_device_memory() && fabric_.topology.rank() == 0) {
    Log(LogLevel::kWarning,
        "SMDDP_GPU_DIRECT=on, but MPI does not say that it is CUDA-aware. If it is not, the ranks will crash in MPI.");
  }
  DeviceGroupLibrary* const groups = decision.stage == DeviceStage::kGroup ? devices_.groups() : nullptr;
  SMDDP_RETURN_IF_ERROR(lane_->Open(decision, cards, groups));
  opening_ = true;
  return decision.stage;
}

Result<bool> SessionDevices::Open() {
  if (!opening_) return true;
  SMDDP_ASSIGN_OR_RETURN(const bool ready, lane_->Ready());
  opening_ = !ready;
  return ready;
}

void SessionDevices::End(bool failed) {
  ended_ = true;
  opening_ = false;
  if (lane_ != nullptr) lane_->End(failed);
}

}  // namespace smddp
