#include "runtime/named/coordination.h"

#include <optional>
#include <utility>

#include "core/clock.h"

namespace smddp {

// --- To the coordinator of a name ---

void Coordination::Announce(Announcement announcement) {
  const int coordinator = CoordinatorOf(announcement, bus_.topology());
  if (coordinator == bus_.topology().rank()) return OnAnnouncement(coordinator, std::move(announcement));
  bus_.Post(coordinator, Encode(announcement));
}

void Coordination::GiveUp(const RequestGivenUp& given_up) {
  const int coordinator = CoordinatorOf(given_up.InItsPlace(), bus_.topology());
  coordinator == bus_.topology().rank() ? OnGivenUp(coordinator, given_up) : bus_.Post(coordinator, Encode(given_up));
}

// --- As a coordinator ---

Status Coordination::OnMessage(int from, std::string_view message) {
  Announcement announcement;
  RequestGivenUp given_up;
  if (Decode(message, &given_up)) {
    OnGivenUp(from, given_up);
  } else if (Decode(message, &announcement) && coordinator_.Complete(&announcement)) {
    OnAnnouncement(from, std::move(announcement));
  } else {
    return Refused(bus_.topology(), from);
  }
  return Status::Ok();
}

void Coordination::OnAnnouncement(int from, Announcement announcement) {
  const std::string plan_key = announcement.plan_key;
  auto verdict = coordinator_.Add(from, std::move(announcement), NowNs());
  if (verdict) {
    Decide(std::move(*verdict));
  } else if (!plan_key.empty() && bus_.failure().ok()) {
    Answer(coordinator_.Disagreeing(plan_key));
  }
}

void Coordination::OnGivenUp(int from, const RequestGivenUp& given_up) {
  if (given_up.missing) {
    auto verdict = coordinator_.Add(from, given_up.InItsPlace(), NowNs(), /*given_up=*/true);
    return verdict ? Decide(std::move(*verdict)) : void();
  }
  const std::optional<Verdict> answer = coordinator_.GiveUp(from, given_up.name);
  if (answer) Send(*answer, {from});
}

void Coordination::OnJoin() {
  for (Verdict& verdict : coordinator_.RankJoined()) Decide(std::move(verdict));
  for (const std::string& key : coordinator_.PlanKeys()) Answer(coordinator_.Disagreeing(key));
}

Status Coordination::AfterDeparture(int rank, const std::string& who) {
  Answer(coordinator_.ExpireWaitingFor(rank, who));
  return Status::Ok();
}

void Coordination::Answer(const std::vector<Coordinator::Expired>& expired) {
  for (const Coordinator::Expired& each : expired) Send(each.verdict, each.announced);
}

void Coordination::Decide(Verdict verdict) {
  if (FusionQueue::Takes(verdict)) return complete_.Add(std::move(verdict));
  Send(verdict, bus_.topology().all().world_ranks());
}

void Coordination::Step() {
  while (const std::optional<Verdict> next = complete_.Next()) Send(*next, bus_.topology().all().world_ranks());
}

void Coordination::Send(const Verdict& verdict, const std::vector<int>& to) {
  // Each rank assigns the verdicts on a name to its requests in their order: one that waits goes first.
  const auto earlier = verdict.is_limited ? std::nullopt : complete_.Take(verdict.name);
  if (earlier) Send(*earlier, bus_.topology().all().world_ranks());
  const std::string message = Encode(verdict);
  bool to_me = false;
  for (const int rank : to) {
    if (verdict.answered.count(rank) != 0) continue;
    if (rank == bus_.topology().rank()) {
      to_me = true;
    } else {
      bus_.Post(rank, message);
    }
  }
  if (to_me) reader_->OnVerdict(verdict);
}

}  // namespace smddp
