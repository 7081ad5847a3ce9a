#include "collectives/device/turns.h"

#include <algorithm>

namespace smddp {
namespace {

constexpr Tag kTag = {kTurnsOperation, 0, 0};

}  // namespace

Status Turns::Want(Key key) {
  wanted_.push_back(key);
  if (!leads()) return Hear();
  order_.push_back(key);
  return Tell(key);
}

Result<bool> Turns::Has(Key key) {
  SMDDP_RETURN_IF_ERROR(leads() ? DropSent() : Hear());
  return !order_.empty() && order_.front() == key;
}

void Turns::Finish(Key key) {
  order_.pop_front();
  wanted_.erase(std::find(wanted_.begin(), wanted_.end(), key));
}

Status Turns::Tell(Key key) {
  Told& told = told_.emplace_back(fabric_.world, key);
  for (int member = 1; member < fabric_.topology.local_size(); ++member) {
    SMDDP_RETURN_IF_ERROR(
        told.transfers.Send(fabric_.topology.node().world_rank(member), kTag, {&told.key, sizeof(Key)}));
  }
  return Status::Ok();
}

Status Turns::DropSent() {
  while (!told_.empty()) {
    SMDDP_ASSIGN_OR_RETURN(const bool gone, told_.front().transfers.AllDone());
    if (!gone) break;
    told_.pop_front();
  }
  return Status::Ok();
}

bool Turns::AllPlaced() const {
  return std::all_of(wanted_.begin(), wanted_.end(),
                     [this](Key key) { return std::find(order_.begin(), order_.end(), key) != order_.end(); });
}

Status Turns::Hear() {
  while (listening_ || !AllPlaced()) {
    if (!listening_) {
      SMDDP_RETURN_IF_ERROR(recv_.Recv(fabric_.topology.node().world_rank(0), kTag, {&heard_, sizeof(heard_)}));
      listening_ = true;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool here, recv_.AllDone());
    if (!here) break;
    listening_ = false;
    order_.push_back(heard_);
  }
  return Status::Ok();
}

std::string Turns::Describe() const {
  return listening_ ? "a place in the order of NCCL's calls, " + recv_.Describe()
                    : "an earlier call of NCCL, which this rank has not begun";
}

}  // namespace smddp
