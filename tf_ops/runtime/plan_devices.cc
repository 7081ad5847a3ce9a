// Plans whose tensors may lie on GPUs: the way their buckets take, agreed on before the first one begins
// (runtime/session_devices.h).
#include "collectives/hierarchical.h"
#include "runtime/plan_table.h"

namespace smddp {
namespace {

constexpr char kPrefix[] = "the GPUs of ";

// Ends with an error where it is stepped, and with it the session.
class FailingTask : public Task {
 public:
  explicit FailingTask(Status why) : why_(std::move(why)) {}
  Result<Progress> Step() override { return why_; }
  std::string Describe() const override { return "failing"; }

 private:
  const Status why_;
};

std::vector<TensorRef> TensorsOf(const std::vector<Arrival>& arrivals) {
  std::vector<TensorRef> tensors;
  for (const Arrival& arrival : arrivals) tensors.push_back(arrival.tensor);
  return tensors;
}

}  // namespace

void PlanTable::SetDevicesPossible(const std::string& name) { plans_.at(name).way = Way::kUnknown; }

bool PlanTable::KnowsWay(Plan* plan, const PlannedBucket& bucket) {
  if (plan->way == Way::kUnknown) {
    plan->way = Way::kAsked;
    const Result<std::string> card = devices_.CardFor(TensorsOf(bucket.generations.front().arrivals));
    ask_(kPrefix + plan->name, card);
  }
  return plan->way == Way::kHost || plan->way == Way::kDevice;
}

Result<bool> PlanTable::OnCards(const Verdict& verdict) {
  const std::string prefix = kPrefix;
  if (verdict.name.compare(0, prefix.size(), prefix) != 0) return false;
  for (auto& [id, plan] : plans_) {
    if (prefix + plan.name != verdict.name) continue;
    if (plan.way != Way::kAsked && plan.way != Way::kUnknown) return true;  // answered before
    SMDDP_RETURN_IF_ERROR(verdict.status);
    SMDDP_ASSIGN_OR_RETURN(const auto cards, DecodeCards(verdict.data, fabric_.topology.size()));
    SMDDP_ASSIGN_OR_RETURN(const DeviceStage stage, devices_.Decide(cards));
    plan.way = stage == DeviceStage::kHost ? Way::kHost : Way::kOpening;
    SMDDP_RETURN_IF_ERROR(StepDevices());
    TryStartAll(&plan);
    return true;
  }
  return false;
}

Status PlanTable::StepDevices() {
  SMDDP_ASSIGN_OR_RETURN(const bool open, devices_.Open());
  if (!open) return Status::Ok();
  for (auto& [id, plan] : plans_) {
    if (plan.way != Way::kOpening) continue;
    plan.way = Way::kDevice;
    TryStartAll(&plan);
  }
  return Status::Ok();
}

TaskPtr PlanTable::BeginBucket(const Plan& plan, const Epoch& epoch, const FusedCall& call,
                               const std::vector<Arrival>& arrivals) {
  const AllreduceAlgorithm& rail = RailFor(plan, epoch, call.view->elements(), call.view->wire());
  const Chunking chunking = {epoch.settings.chunk_bytes, epoch.settings.chunks_in_flight};
  const Result<DeviceLane*> lane = devices_.LaneFor(TensorsOf(arrivals));
  if (!lane.ok()) return std::make_unique<FailingTask>(lane.status());
  const bool from_gpu_to_gpu = plan.way == Way::kDevice && TakesDevicePath(**lane, call);
  DeviceCall device = {call, {}, chunking, /*through_host=*/!from_gpu_to_gpu};
  bool any = false;
  for (const Arrival& arrival : arrivals) {
    if (arrival.tensor.elements() == 0) continue;  // as in the view
    device.works.push_back(arrival.tensor.device);
    any |= arrival.tensor.device != nullptr;
  }
  if (!any && !from_gpu_to_gpu) return HierarchicalAllreduce(fabric_, rail, call, chunking);
  return DeviceAllreduce(**lane, rail, device);
}

}  // namespace smddp
