#include "collectives/device/nccl_call_order.h"

#include <algorithm>

namespace smddp {
namespace {

constexpr Tag kTag = {kNcclOrderOperation, 0, 0};

}  // namespace

Status NcclCallOrder::Want(Key key) {
  wanted_.push_back(key);
  if (!leads()) return Receive();
  order_.push_back(key);
  return Send(key);
}

Result<bool> NcclCallOrder::Has(Key key) {
  SMDDP_RETURN_IF_ERROR(leads() ? DropSent() : Receive());
  return !order_.empty() && order_.front() == key;
}

void NcclCallOrder::Finish(Key key) {
  order_.pop_front();
  wanted_.erase(std::find(wanted_.begin(), wanted_.end(), key));
}

Status NcclCallOrder::Send(Key key) {
  Sent& sent = sent_.emplace_back(fabric_.transport, key);
  for (int member = 1; member < fabric_.topology.local_size(); ++member) {
    SMDDP_RETURN_IF_ERROR(
        sent.transfers.Send(fabric_.topology.node().world_rank(member), kTag, {&sent.key, sizeof(Key)}));
  }
  return Status::Ok();
}

Status NcclCallOrder::DropSent() {
  while (!sent_.empty()) {
    SMDDP_ASSIGN_OR_RETURN(const bool gone, sent_.front().transfers.AllDone());
    if (!gone) break;
    sent_.pop_front();
  }
  return Status::Ok();
}

bool NcclCallOrder::AllPlaced() const {
  return std::all_of(wanted_.begin(), wanted_.end(),
                     [this](Key key) { return std::find(order_.begin(), order_.end(), key) != order_.end(); });
}

Status NcclCallOrder::Receive() {
  while (receiving_ || !AllPlaced()) {
    if (!receiving_) {
      SMDDP_RETURN_IF_ERROR(recv_.Recv(fabric_.topology.node().world_rank(0), kTag, {&received_, sizeof(received_)}));
      receiving_ = true;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool here, recv_.AllDone());
    if (!here) break;
    receiving_ = false;
    order_.push_back(received_);
  }
  return Status::Ok();
}

std::string NcclCallOrder::Describe() const {
  return receiving_ ? "a place in the order of NCCL's calls, " + recv_.Describe()
                    : "an earlier call of NCCL, which this rank has not begun";
}

}  // namespace smddp
