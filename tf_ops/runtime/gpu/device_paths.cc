#include "runtime/gpu/device_paths.h"

namespace smddp {
namespace {

// Plans and what the ranks say about their GPUs are announced under different names.
constexpr char kPrefix[] = "the GPUs of ";

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
    AnnounceDevice(coordination_, kPrefix + plan, *info);
  }
  return IsSettled(plan);
}

void DevicePaths::OnVerdict(const Verdict& verdict) {
  if (verdict.name == MethodAgreement::kName) {
    const Status status = verdict.status.ok() ? agreement_.OnRound(verdict.devices) : verdict.status;
    return status.ok() ? Settle() : bus_.Fail(status);
  }
  for (auto& [plan, state] : states_) {
    if (kPrefix + plan != verdict.name) continue;
    if (state != State::kAsked && state != State::kUnknown) return;  // answered already
    const std::string name = plan;
    state = State::kOpening;
    const Result<bool> opens = verdict.status.ok() ? Opens(verdict.devices) : Result<bool>(verdict.status);
    if (!opens.ok()) return bus_.Fail(opens.status());
    if (*opens) return Settle();
    states_[name] = State::kHost;
    return on_agreed_(name);
  }
}

void DevicePaths::Step() {
  if (opening() && bus_.failure().ok()) agreement_.Step();
}

void DevicePaths::Settle() {
  if (!agreement_.settled()) return;
  std::vector<std::string> opened;
  for (auto& [plan, state] : states_) {
    if (state != State::kOpening) continue;
    state = context_->method() == DeviceMethod::kHost ? State::kHost : State::kDevice;
    opened.push_back(plan);
  }
  for (const std::string& plan : opened) on_agreed_(plan);
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
    return Status(Reason::kBadArgument, "Rank ", fabric_.topology.global_rank(fabric_.topology.rank()),
                  " has tensors on GPU ", its.index, " and on GPU ", mine.index,
                  ". A rank can use only one GPU: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU').");
  }
  return context_.get();
}

Result<std::string> DevicePaths::DeviceInfoFor(const std::vector<TensorRef>& tensors) {
  RankDeviceInfo info;
  const auto in_host_memory = [](const TensorRef& tensor) { return tensor.device == nullptr; };
  if (std::all_of(tensors.begin(), tensors.end(), in_host_memory)) return Encode(info);
  SMDDP_RETURN_IF_ERROR(ContextFor(tensors).status());
  info.has_device = true;
  info.device = context_->device().info();
  Result<DeviceGroupLibrary*> groups = devices_.groups();
  info.why_no_group = groups.status().message();
  if (!groups.ok()) return Encode(info);
  info.group_version = (*groups)->version();
  info.shares_device = ranks_share_gpus_;
  return Encode(info);
}

Result<bool> DevicePaths::Opens(const std::vector<std::string>& texts) {
  const Topology& topology = fabric_.topology;
  SMDDP_ASSIGN_OR_RETURN(const std::vector<RankDeviceInfo> infos, ReadAll<RankDeviceInfo>(topology, texts));
  SMDDP_ASSIGN_OR_RETURN(const DeviceDecision decision, Decide(topology, wanted_, infos));
  const DeviceMethod best = decision.methods.front();
  const std::string& why = decision.why_not_nccl;
  if (!why.empty() && told_.insert(why).second) TellWhyNot(topology, best, DeviceMethod::kAll, why);
  if (best == DeviceMethod::kHost) return false;
  if (context_ == nullptr) {
    return Status(Reason::kInternal, "Rank 0 expects gradients on a GPU, but this rank has none.");
  }
  if (agreement_.begun()) return true;
  const Result<DeviceGroupLibrary*> groups = devices_.groups();
  agreement_.Begin(*context_, groups.ok() ? *groups : nullptr, decision.methods);
  return true;
}

void DevicePaths::End(bool failed) {
  ended_ = true;
  if (context_ != nullptr) context_->End(failed);
}

TaskPtr DevicePaths::BeginBucket(const std::string& plan, const AllreduceAlgorithm& rail, const FusedCall& call,
                                 const std::vector<TensorRef>& tensors) {
  const Result<DeviceContext*> context = ContextFor(tensors);
  if (!context.ok()) return Until("failing", [context]() -> Result<bool> { return context.status(); });
  if (*context == nullptr) return HierarchicalAllreduce(fabric_, rail, call);
  const auto at = states_.find(plan);
  DeviceCall device = {call, {}, /*through_host=*/at == states_.end() || at->second != State::kDevice};
  for (const TensorRef& tensor : tensors) {
    if (tensor.elements() > 0) device.works.push_back(tensor.device);  // as in the view: no empty tensors
  }
  return DeviceAllreduce(**context, rail, device);
}

}  // namespace smddp
