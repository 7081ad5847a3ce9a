#include "runtime/engine/message_router.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace smddp {

void MessageRouter::Post(int to, std::string message) {
  if (!departures_.has(to)) posted_[to].push_back(std::move(message));
}

void MessageRouter::Send() {
  while (!posted_.empty()) {
    for (auto& [to, messages] : std::exchange(posted_, {})) {
      if (departures_.has(to)) continue;
      const bool one = messages.size() == 1;
      const Status status = SendNow(to, one ? std::move(messages.front()) : Encode(Batch{std::move(messages)}));
      if (!status.ok()) bus_.Fail(status);  // posts once more at most: the session fails once
    }
  }
}

Status MessageRouter::SendNow(int to, std::string message) {
  const Topology& topology = bus_.topology();
  if (topology.node_of(to) != topology.node_index()) posted_to_.insert(to);
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(static_cast<int64_t>(message.size()), std::memory_order_relaxed);
  return transport_.Post(to, std::move(message));
}

void MessageRouter::PostToReaders(const std::vector<int>& ranks, const std::string& message) {
  for (const int rank : ranks) {
    if (rank == bus_.topology().rank()) continue;
    if (!departures_.has(rank)) {
      Post(rank, message);
    } else if (departures_.listens(rank)) {
      const Status status = SendNow(rank, message);
      if (!status.ok()) return bus_.FailHere(status);
    }
  }
  Send();
}

bool MessageRouter::Read(bool* worked) {
  Message message;
  bool heard = false;
  while (transport_.Poll(&message)) {
    heard = true;
    for (const std::string& each : Unpack(std::move(message.bytes))) {
      *worked |= BelongsToWork(each);
      const Status status = Deliver(message.from, each);
      if (!status.ok()) bus_.Fail(status);
    }
  }
  return heard;
}

Status MessageRouter::Deliver(int from, std::string_view message) {
  const std::optional<ControlType> type = TypeOf(message);
  heartbeat_.Heard(from, NowNs());
  if (!type) return Refused(bus_.topology(), from);
  if (type == ControlType::kHeartbeat) return Status::Ok();
  if (type == ControlType::kGoodbye) return OnGoodbye(from, message);
  if (type == ControlType::kDeparted) return OnDeparted(from, message);
  if (type == ControlType::kAbort) {
    Abort abort;
    if (!Decode(message, &abort)) return Refused(bus_.topology(), from);
    bus_.FailHere(abort.why);
    return Status::Ok();
  }
  const auto reader = readers_.find(*type);
  if (reader == readers_.end()) return Refused(bus_.topology(), from);
  const bool wanted = bus_.failure().ok() || reader->second.delivery == Delivery::kAlways;
  return wanted && !closed_ ? reader->second.component->OnMessage(from, message) : Status::Ok();
}

// --- Ranks that leave ---

Status MessageRouter::OnGoodbye(int from, std::string_view message) {
  Goodbye goodbye;
  if (!Decode(message, &goodbye)) return Refused(bus_.topology(), from);
  Depart(from, goodbye);
  if (goodbye.clean) return Status::Ok();
  bus_.FailHere(Status(Reason::kPeerLeft, "Rank ", bus_.topology().global_rank(from),
                       " ended its session (hvd.shutdown, an exception or the end of its program) while operations "
                       "were under way. Its own output says why."));
  return Status::Ok();
}

Status MessageRouter::OnDeparted(int from, std::string_view message) {
  const Topology& topology = bus_.topology();
  Departed departed;
  if (!Decode(message, &departed)) return Refused(topology, from);
  for (const auto& [rank, goodbye] : departed.ranks) {
    if (rank < 0 || rank >= topology.size() || !goodbye.clean) return Refused(topology, from);
    const bool tells_me = std::count(goodbye.told.begin(), goodbye.told.end(), topology.rank()) != 0;
    if (rank != topology.rank() && !departures_.has(rank) && !tells_me) Depart(rank, goodbye);
  }
  return Status::Ok();
}

void MessageRouter::Depart(int rank, const Goodbye& goodbye) {
  const std::vector<Departures::Forward> forwards = departures_.Add(rank, goodbye, NowNs());
  if (goodbye.listens) ended_rank_ = bus_.topology().global_rank(rank);
  if (!goodbye.listens) transport_.Forget(rank);
  for (Component* component : components_) component->OnDeparture(rank);
  for (const auto& [to, what] : forwards) PostToReaders(to, Encode(what));
}

void MessageRouter::SayGoodbye(const Goodbye& goodbye) {
  const Topology& topology = bus_.topology();
  if (!goodbye.clean || !goodbye.listens) return PostToReaders(topology.all().world_ranks(), Encode(goodbye));
  Send();  // what waits for other ranks counts as sent: the goodbye follows it
  Goodbye to_some = goodbye;
  to_some.told.assign(posted_to_.begin(), posted_to_.end());
  std::vector<int> ranks = topology.node().world_ranks();
  ranks.insert(ranks.end(), posted_to_.begin(), posted_to_.end());
  PostToReaders(ranks, Encode(to_some));
  for (const auto& [to, what] : departures_.Add(topology.rank(), to_some, NowNs())) PostToReaders(to, Encode(what));
}

}  // namespace smddp
