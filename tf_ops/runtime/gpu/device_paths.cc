#include "runtime/gpu/device_paths.h"

#include <algorithm>

#include "core/process/log.h"

namespace smddp {
namespace {

// Plans and what the ranks say about their GPUs are announced under different names.
constexpr char kPrefix[] = "the GPUs of ";

// Fails at its first step, which ends the session.
class FailingTask : public Task {
 public:
  explicit FailingTask(Status why) : why_(std::move(why)) {}
  Result<Progress> Step() override { return why_; }
  std::string Describe() const override { return "failing"; }

 private:
  const Status why_;
};

}  // namespace

void DevicePaths::Expect(const std::string& plan, bool asked) {
  states_[plan] = asked ? State::kAsked : State::kUnknown;
}

void DevicePaths::AskAlso(const std::string& plan) {
  const auto at = states_.find(plan);
  if (at != states_.end() && at->second == State::kAsked) at->second = State::kUnknown;
}

bool DevicePaths::IsSettled(const std::string& plan) const {
  const auto at = states_.find(plan);
  return at != states_.end() && (at->second == State::kHost || at->second == State::kDevice);
}

bool DevicePaths::IsAgreed(const std::string& plan, const Tensors& tensors) {
  State& state = states_[plan];
  if (state == State::kUnknown) {
    state = State::kAsked;
    const Result<std::string> info = DeviceInfoFor(tensors());
    if (!info.ok()) {
      bus_.Fail(info.status());
      return false;
    }
    Announcement announcement;
    announcement.kind = RequestKind::kDevices;
    announcement.name = kPrefix + plan;
    announcement.data = info.value();
    coordination_.Announce(std::move(announcement));
  }
  return IsSettled(plan);
}

void DevicePaths::OnVerdict(const Verdict& verdict) {
  for (auto& [plan, state] : states_) {
    if (kPrefix + plan != verdict.name) continue;
    if (state != State::kAsked && state != State::kUnknown) return;  // answered already
    const std::string name = plan;
    const Status status = Decide(&state, verdict);
    return status.ok() ? on_agreed_(name) : bus_.Fail(status);
  }
}

Status DevicePaths::Decide(State* state, const Verdict& verdict) {
  SMDDP_RETURN_IF_ERROR(verdict.status);
  SMDDP_ASSIGN_OR_RETURN(const DeviceMethod method, MethodFor(verdict.devices));
  *state = method == DeviceMethod::kHost ? State::kHost : State::kOpening;
  return FinishOpening();
}

void DevicePaths::Step() {
  if (!opening_ || !bus_.failure().ok()) return;
  const Status status = FinishOpening();
  if (!status.ok()) bus_.Fail(status);
}

Status DevicePaths::FinishOpening() {
  if (opening_) {
    SMDDP_ASSIGN_OR_RETURN(const bool ready, context_->Ready());
    if (!ready) return Status::Ok();
    opening_ = false;
  }
  std::vector<std::string> opened;
  for (auto& [plan, state] : states_) {
    if (state != State::kOpening) continue;
    state = State::kDevice;
    opened.push_back(plan);
  }
  for (const std::string& plan : opened) on_agreed_(plan);
  return Status::Ok();
}

Result<DeviceContext*> DevicePaths::ContextFor(const std::vector<TensorRef>& tensors) {
  for (const TensorRef& tensor : tensors) {
    if (tensor.device == nullptr) continue;
    if (context_ == nullptr) {
      if (ended_) return Status(Reason::kShutDown, "The session has ended.");
      auto context = std::make_unique<DeviceContext>(fabric_, tensor.device->device());
      SMDDP_RETURN_IF_ERROR(context->Make());
      context_ = std::move(context);
    }
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

Result<std::string> DevicePaths::DeviceInfoFor(const std::vector<TensorRef>& tensors) {
  RankDeviceInfo info;
  info.wanted = wanted_;
  const auto in_host_memory = [](const TensorRef& tensor) { return tensor.device == nullptr; };
  if (std::all_of(tensors.begin(), tensors.end(), in_host_memory)) return Encode(info);
  SMDDP_RETURN_IF_ERROR(ContextFor(tensors).status());
  info.has_device = true;
  info.visible = devices_.Count();
  info.device = context_->device().info();
  Result<DeviceGroupLibrary*> groups = devices_.groups();
  info.why_no_group = groups.status().message();
  if (!groups.ok()) return Encode(info);
  info.group_version = (*groups)->version();
  info.shares_device = ranks_share_gpus_;
  if (fabric_.topology.local_rank() == 0 && context_->method() == DeviceMethod::kHost) {
    SMDDP_ASSIGN_OR_RETURN(info.group_id, (*groups)->MakeId());
  }
  return Encode(info);
}

Result<DeviceMethod> DevicePaths::MethodFor(const std::vector<std::string>& texts) {
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

void DevicePaths::End(bool failed) {
  ended_ = true;
  opening_ = false;
  if (context_ != nullptr) context_->End(failed);
}

TaskPtr DevicePaths::BeginBucket(const std::string& plan, const AllreduceAlgorithm& rail, const FusedCall& call,
                                 const std::vector<TensorRef>& tensors) {
  const Result<DeviceContext*> context = ContextFor(tensors);
  if (!context.ok()) return std::make_unique<FailingTask>(context.status());
  const auto at = states_.find(plan);
  const bool agreed = at != states_.end() && at->second == State::kDevice;
  const bool from_gpu_to_gpu = agreed && TakesDevicePath(**context, call);
  DeviceCall device = {call, {}, /*through_host=*/!from_gpu_to_gpu};
  bool any = false;
  for (const TensorRef& tensor : tensors) {
    if (tensor.elements() == 0) continue;  // as in the view: no empty tensors
    device.works.push_back(tensor.device);
    any |= tensor.device != nullptr;
  }
  if (!any && !from_gpu_to_gpu) return HierarchicalAllreduce(fabric_, rail, call);
  return DeviceAllreduce(**context, rail, device);
}

}  // namespace smddp
