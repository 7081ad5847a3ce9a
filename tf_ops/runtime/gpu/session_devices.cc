#include "runtime/gpu/session_devices.h"

#include "core/process/log.h"

namespace smddp {
namespace {

const DeviceWork* FirstWork(const std::vector<TensorRef>& tensors) {
  for (const TensorRef& tensor : tensors) {
    if (tensor.device != nullptr) return tensor.device.get();
  }
  return nullptr;
}

}  // namespace

Status SessionDevices::MakeContext(Device& device) {
  if (context_ != nullptr) return Status::Ok();
  if (ended_) return Status(Reason::kShutDown, "The session has ended.");
  auto context = std::make_unique<DeviceContext>(fabric_, device);
  SMDDP_RETURN_IF_ERROR(context->Make());
  context_ = std::move(context);
  return Status::Ok();
}

Result<DeviceContext*> SessionDevices::ContextFor(const std::vector<TensorRef>& tensors) {
  for (const TensorRef& tensor : tensors) {
    if (tensor.device == nullptr) continue;
    SMDDP_RETURN_IF_ERROR(MakeContext(tensor.device->device()));
    const DeviceInfo& mine = context_->device().info();
    const DeviceInfo& its = tensor.device->device().info();
    if (its.index == mine.index) continue;
    return Status(Reason::kBadArgument,
                  "Rank " + std::to_string(fabric_.topology.global_rank(fabric_.topology.rank())) +
                      " has tensors on GPU " + std::to_string(its.index) + " and on GPU " + std::to_string(mine.index) +
                      ". A rank can use only one GPU: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU').");
  }
  return context_.get();
}

Result<std::string> SessionDevices::DeviceInfoFor(const std::vector<TensorRef>& tensors) {
  RankDeviceInfo info;
  info.wanted = wanted_;
  const DeviceWork* const work = FirstWork(tensors);
  if (work == nullptr) return Encode(info);
  SMDDP_RETURN_IF_ERROR(ContextFor(tensors).status());
  info.has_device = true;
  info.visible = devices_.Count();
  info.device = work->device().info();
  Result<DeviceGroupLibrary*> groups = devices_.groups();
  info.why_no_group = groups.status().message();
  if (!groups.ok()) return Encode(info);
  info.group_version = (*groups)->version();
  if (fabric_.topology.local_rank() == 0 && context_->method() == DeviceMethod::kHost) {
    SMDDP_ASSIGN_OR_RETURN(info.group_id, (*groups)->MakeId());
  }
  return Encode(info);
}

Result<DeviceMethod> SessionDevices::Decide(const std::vector<std::string>& texts) {
  const int size = fabric_.topology.size();
  if (texts.size() != static_cast<size_t>(size)) return OtherVersion("Rank 0 sent unreadable descriptions of GPUs");
  std::vector<RankDeviceInfo> infos(size);
  for (int rank = 0; rank < size; ++rank) {
    infos[rank].wanted = wanted_;
    if (texts[rank].empty() || Decode(texts[rank], &infos[rank])) continue;
    return Refused(fabric_.topology, rank, "sent an unreadable description of its GPU");
  }
  SMDDP_ASSIGN_OR_RETURN(const DeviceDecision decision, smddp::Decide(fabric_.topology, infos));
  if (fabric_.topology.rank() == 0) {
    for (const std::string& warning : decision.warnings) Log(LogLevel::kWarning, warning);
  }
  if (decision.method != DeviceMethod::kHost && context_ == nullptr) {
    return Status(Reason::kInternal, "Rank 0 expects gradients on a GPU, but this rank has none.");
  }
  Log(LogLevel::kInfo, std::string("gradients on GPUs use the method '") + NameOf(decision.method) + "'");
  if (decision.method == DeviceMethod::kHost || context_->method() == decision.method) return decision.method;
  DeviceGroupLibrary* groups = nullptr;
  if (fabric_.topology.local_size() > 1) {
    SMDDP_ASSIGN_OR_RETURN(groups, devices_.groups());
  }
  SMDDP_RETURN_IF_ERROR(context_->Open(decision, infos, groups));
  opening_ = true;
  return decision.method;
}

Result<bool> SessionDevices::Open() {
  if (!opening_) return true;
  SMDDP_ASSIGN_OR_RETURN(const bool ready, context_->Ready());
  opening_ = !ready;
  return ready;
}

void SessionDevices::End(bool failed) {
  ended_ = true;
  opening_ = false;
  if (context_ != nullptr) context_->End(failed);
}

}  // namespace smddp
