#include "runtime/gpu/device_paths.h"

#include <memory>
#include <utility>

#include "collectives/hierarchical.h"

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
    const Result<std::string> info = devices_.DeviceInfoFor(tensors());
    if (!info.ok()) {
      bus_.Fail(info.status());
      return false;
    }
    Announcement announcement;
    announcement.kind = RequestKind::kDevices;
    announcement.name = kPrefix + plan;
    announcement.data = info.value();
    named_.Announce(std::move(announcement));
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
  SMDDP_ASSIGN_OR_RETURN(const DeviceMethod method, devices_.Decide(verdict.devices));
  *state = method == DeviceMethod::kHost ? State::kHost : State::kOpening;
  return FinishOpening();
}

void DevicePaths::Step() {
  if (!devices_.opening() || !bus_.failure().ok()) return;
  const Status status = FinishOpening();
  if (!status.ok()) bus_.Fail(status);
}

Status DevicePaths::FinishOpening() {
  SMDDP_ASSIGN_OR_RETURN(const bool open, devices_.Open());
  if (!open) return Status::Ok();
  std::vector<std::string> opened;
  for (auto& [plan, state] : states_) {
    if (state != State::kOpening) continue;
    state = State::kDevice;
    opened.push_back(plan);
  }
  for (const std::string& plan : opened) on_agreed_(plan);
  return Status::Ok();
}

TaskPtr DevicePaths::BeginBucket(const std::string& plan, const AllreduceAlgorithm& rail, const FusedCall& call,
                                 const std::vector<TensorRef>& tensors) {
  const Result<DeviceContext*> context = devices_.ContextFor(tensors);
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
