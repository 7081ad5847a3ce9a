#include "runtime/gpu/method_agreement.h"

#include <utility>

#include "core/process/log.h"

namespace smddp {
namespace {

constexpr int64_t kPauseNs = 50 * 1000000LL;

}  // namespace

void MethodAgreement::Begin(DeviceContext& context, DeviceGroupLibrary* groups, std::vector<DeviceMethod> methods) {
  context_ = &context;
  groups_ = groups;
  methods_ = std::move(methods);
  Start();
}

void MethodAgreement::Start() {
  mine_ = {};
  mine_.method = static_cast<int32_t>(method());
  settled_ = method() == DeviceMethod::kHost;
  if (settled_) return;
  mine_.started = members().size() == 1;
  begun_ns_ = NowNs();
  if (!mine_.started && members().world_rank(0) == topology_.rank()) {
    const Result<std::string> id = groups_->MakeId();
    id.ok() ? void(mine_.id = *id) : Fails(id.status());
  }
  Announce();
}

// The answer may come before this returns.
void MethodAgreement::Announce() {
  waits_for_answer_ = true;
  AnnounceDevice(coordination_, kName, Encode(mine_));
}

Status MethodAgreement::OnRound(const std::vector<std::string>& texts) {
  waits_for_answer_ = false;
  answered_ns_ = NowNs();
  SMDDP_ASSIGN_OR_RETURN(std::vector<MethodRound> all, ReadAll<MethodRound>(topology_, texts));
  bool all_started = true;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (all[rank].method != mine_.method) all[rank] = {};
    if (!all[rank].why_not.empty()) return Next(NamedWithHost(topology_, rank) + ": " + all[rank].why_not);
    all_started &= all[rank].started;
  }
  settled_ = all_started;
  if (settled_) {
    context_->Use(method());
    Log(LogLevel::kInfo, "gradients on GPUs use the method '", NameOf(method()), "'");
  }
  const std::string& id = all[members().world_rank(0)].id;
  if (mine_.started || context_->calls() != nullptr || id.empty()) return Status::Ok();
  const Status joins = context_->Join(members(), id, *groups_);
  if (!joins.ok()) Fails(joins);
  return Status::Ok();
}

void MethodAgreement::Step() {
  if (waits_for_answer_) return;
  if (!mine_.started && mine_.why_not.empty()) {
    Result<bool> joined = context_->calls() != nullptr ? context_->calls()->Joined() : Result<bool>(false);
    if (joined.ok() && !*joined && NowNs() - begun_ns_ > static_cast<int64_t>(seconds_ * 1e9)) {
      joined = Status(Reason::kTimedOut, "NCCL has not connected the ranks within ", static_cast<int>(seconds_), " s");
    }
    mine_.started = joined.ok() && *joined;
    if (!joined.ok()) Fails(joined.status());
  }
  const bool news = mine_.started || !mine_.why_not.empty();
  if (news || NowNs() - answered_ns_ > kPauseNs) Announce();
}

Status MethodAgreement::Next(const std::string& why) {
  const DeviceMethod failed = method();
  context_->End(/*failed=*/true);
  methods_.erase(methods_.begin());
  if (methods_.empty()) {
    return Status(Reason::kBadState, "SMDDP_GPU_STAGE=", NameOf(failed), ", but it does not start. ", why);
  }
  TellWhyNot(topology_, method(), failed, why);
  Start();
  return Status::Ok();
}

void AnnounceDevice(Coordination& coordination, std::string name, std::string what) {
  Announcement announcement;
  announcement.kind = RequestKind::kDevices;
  announcement.name = std::move(name);
  announcement.data = std::move(what);
  coordination.Announce(std::move(announcement));
}

void TellWhyNot(const Topology& topology, DeviceMethod taken, DeviceMethod expected, const std::string& why) {
  if (topology.rank() != 0) return;
  Log(LogLevel::kWarning, "gradients on GPUs use the method '", NameOf(taken), "' and not '", NameOf(expected),
      "': ", why);
}

}  // namespace smddp
