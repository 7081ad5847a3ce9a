#include "collectives/device/nccl_call_order.h"

#include <algorithm>

namespace smddp {
namespace {

constexpr Tag kTag = {kNcclOrderOperation, 0, 0};
// Turns that are told before the current one is over: its message travels while the one before it is launched.
constexpr size_t kTurnsAhead = 2;

}  // namespace

NcclCallOrder::NcclCallOrder(const Fabric& fabric, const Group& members)
    : fabric_(fabric),
      members_(members),
      tree_(BinomialTree(members.size(), 0, members.position_of(fabric.topology.rank()))),
      recv_(fabric.transport) {}

Status NcclCallOrder::Want(Key key) {
  wanted_.push_back(key);
  return tree_.parent < 0 ? Assign() : Receive();
}

Result<std::vector<NcclCallOrder::Key>> NcclCallOrder::Turn() {
  SMDDP_RETURN_IF_ERROR(DropSent());
  SMDDP_RETURN_IF_ERROR(tree_.parent < 0 ? Assign() : Receive());
  if (turns_.empty() || !sent_.empty()) return std::vector<Key>();
  for (const Key key : turns_.front()) {
    if (std::count(wanted_.begin(), wanted_.end(), key) == 0) return std::vector<Key>();
  }
  return turns_.front();
}

void NcclCallOrder::Finish() {
  for (const Key key : turns_.front()) wanted_.erase(std::find(wanted_.begin(), wanted_.end(), key));
  turns_.pop_front();
}

std::vector<NcclCallOrder::Key> NcclCallOrder::WithoutTurn() const {
  std::vector<Key> without = wanted_;
  for (const auto& turn : turns_) {
    for (const Key key : turn) without.erase(std::remove(without.begin(), without.end(), key), without.end());
  }
  return without;
}

// By the first member.
Status NcclCallOrder::Assign() {
  while (turns_.size() < kTurnsAhead) {
    Message message;
    for (const Key key : WithoutTurn()) {
      if (message.count < kMostTogether) message.keys[message.count++] = key;
    }
    if (message.count == 0) break;
    SMDDP_RETURN_IF_ERROR(Add(message));
  }
  return Status::Ok();
}

// By the others.
Status NcclCallOrder::Receive() {
  while (receiving_ || !WithoutTurn().empty()) {
    if (!receiving_) {
      SMDDP_RETURN_IF_ERROR(recv_.Recv(members_.world_rank(tree_.parent), kTag, {&received_, sizeof(received_)}));
      receiving_ = true;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool here, recv_.AllDone());
    if (!here) break;
    receiving_ = false;
    if (received_.count < 1 || received_.count > kMostTogether)
      return OtherVersion("The order of NCCL's calls is unreadable");
    SMDDP_RETURN_IF_ERROR(Add(received_));
  }
  return Status::Ok();
}

Status NcclCallOrder::Add(const Message& message) {
  turns_.emplace_back(message.keys, message.keys + message.count);
  if (tree_.children.empty()) return Status::Ok();
  Sent& sent = sent_.emplace_back(fabric_.transport, message);
  for (const int child : tree_.children) {
    SMDDP_RETURN_IF_ERROR(sent.transfers.Send(members_.world_rank(child), kTag, {&sent.message, sizeof(sent.message)}));
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

std::string NcclCallOrder::Describe() const {
  return receiving_ ? "a place in the order of NCCL's calls, " + recv_.Describe()
                    : "an earlier call of NCCL, which this rank has not begun";
}

}  // namespace smddp
