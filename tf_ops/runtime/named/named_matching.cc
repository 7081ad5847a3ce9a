#include "runtime/named/named_matching.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/clock.h"
#include "transport/transport.h"

namespace smddp {
namespace {

bool IsPlan(const NamedRequest& request) { return request.announcement.kind == RequestKind::kPlan; }

}  // namespace

// --- This rank's requests ---

void NamedMatching::Submit(NamedRequest request) {
  if (!bus_.failure().ok()) return request.done(bus_.failure());
  const RequestKind kind = request.announcement.kind;
  if (bus_.trace().on())
    bus_.trace().Record(TraceWhat::kOpAnnounced, request.announcement.name, 0, CapitalNameOf(kind));
  request.submitted_ns = NowNs();
  request.announcement.round = rounds_.round();
  if (kind != RequestKind::kPlan) {
    ++own_;
    request.done = [this, done = std::move(request.done)](const Status& status) {
      --own_;
      done(status);
    };
  }
  std::deque<NamedRequest>& same_name = waiting_[request.announcement.name];
  request.announcement.duplicate = !same_name.empty();  // the coordinator turns it into an error on all ranks
  same_name.push_back(std::move(request));
  Announcement announcement = same_name.back().announcement;  // a verdict may arrive, and remove it, while it is sent
  numbers_.Shorten(&announcement);
  coordination_.Announce(std::move(announcement));
}

// --- Verdicts ---

Status NamedMatching::OnMessage(int from, std::string_view message) {
  Verdict verdict;
  if (!Decode(message, &verdict) || !ReadNames(from, &verdict)) return Refused(bus_.topology(), from);
  Apply(verdict);
  return Status::Ok();
}

void NamedMatching::OnVerdict(const Verdict& verdict) {
  Verdict mine = verdict;
  ReadNames(bus_.topology().rank(), &mine);
  Apply(mine);
}

bool NamedMatching::ReadNames(int coordinator, Verdict* verdict) {
  return numbers_.Read(coordinator, verdict) &&
         std::all_of(verdict->fused.begin(), verdict->fused.end(),
                     [&](RequestRef& each) { return numbers_.Read(coordinator, &each); });
}

void NamedMatching::Apply(const Verdict& verdict) {
  if (verdict.kind == RequestKind::kDevices) return of_devices_->OnVerdict(verdict);
  const auto& joined = verdict.joined;
  const bool as_joined = std::find(joined.begin(), joined.end(), bus_.topology().rank()) != joined.end();
  if (as_joined) return verdict.status.ok() ? as_joined_->OnVerdict(verdict) : void();
  std::optional<NamedRequest> request = TakeWaiting(verdict);
  if (!request) return;
  if (verdict.fused.empty()) return Begin(verdict, std::move(*request));
  Result<NamedRequest> fused = Fuse(verdict, std::move(*request));
  if (!fused.ok()) return bus_.Fail(fused.status());
  Begin(verdict, std::move(*fused));
}

std::optional<NamedRequest> NamedMatching::TakeWaiting(const RequestRef& verdict) {
  NamedRequest request;
  if (!TakeOldest(&waiting_, verdict.name, &request)) return std::nullopt;
  numbers_.Keep(request.announcement, verdict);
  return request;
}

Result<NamedRequest> NamedMatching::Fuse(const Verdict& verdict, NamedRequest first) {
  std::vector<NamedRequest> requests;
  requests.push_back(std::move(first));
  bool possible = MayBeFused(requests.front().announcement);
  for (const RequestRef& each : verdict.fused) {
    std::optional<NamedRequest> next = TakeWaiting(each);
    possible = possible && next && MayBeFused(next->announcement);
    if (next) requests.push_back(std::move(*next));
  }
  if (possible) return requests_.Fused(std::move(requests));
  const Status why = OtherVersion("Allreduces to be reduced together with '", verdict.name, "' do not fit together");
  for (const NamedRequest& each : requests) each.done(why);
  return why;
}

void NamedMatching::Begin(const Verdict& verdict, NamedRequest request) {
  Trace& trace = bus_.trace();
  if (!verdict.status.ok()) {
    trace.Record(TraceWhat::kOpFailed, verdict.name, 0);
    return request.done(verdict.status);
  }
  Result<TaskPtr> task = request.begin(verdict);
  if (!task.ok()) {
    request.done(task.status());
    return bus_.Fail(task.status());  // the other ranks have begun
  }
  std::vector<std::string> names = {verdict.name};
  for (const RequestRef& each : verdict.fused) names.push_back(each.name);
  for (const std::string& name : names) {
    if (trace.on()) trace.Record(TraceWhat::kOpStart, name, 0, CapitalNameOf(verdict.kind));
  }
  RunningTask running;
  running.task = std::move(*task);
  running.keep = std::move(request.keep);
  running.submitted_ns = request.submitted_ns;
  running.is_plan = verdict.kind == RequestKind::kPlan;
  running.name = std::string(NameOf(verdict.kind)) + " '" + verdict.name + "'";
  if (names.size() > 1) running.name += " and " + std::to_string(names.size() - 1) + " more";
  running.done = [this, names = std::move(names), is_limited = verdict.is_limited,
                  done = std::move(request.done)](const Status& status) {
    for (const std::string& name : names) bus_.trace().Record(TraceWhat::kOpDone, name, 0);
    if (status.ok()) done_.fetch_add(static_cast<int64_t>(names.size()), std::memory_order_relaxed);
    if (is_limited) coordination_.OnEnded();
    done(status);
  };
  bus_.Run(std::move(running));
}

// --- The session ---

Status NamedMatching::AfterDeparture(int rank, const std::string& who) {
  std::vector<NamedRequest> lost;  // those that wait for a verdict of `rank`
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool its = CoordinatorOf(at->second.front().announcement, bus_.topology()) == rank;
    if (its) std::move(at->second.begin(), at->second.end(), std::back_inserter(lost));
    at = its ? waiting_.erase(at) : std::next(at);
  }
  for (const NamedRequest& request : lost) {
    request.done(Status(Reason::kPeerLeft, who, " while ", NameOf(request.announcement.kind), " '",
                        request.announcement.name, "' waited for it."));
  }
  return Status::Ok();
}

void NamedMatching::OnFailure(const Status& why) {
  for (const auto& [name, requests] : std::exchange(waiting_, {})) {
    for (const NamedRequest& request : requests) request.done(why);
  }
}

bool NamedMatching::waiting() const {
  return std::any_of(waiting_.begin(), waiting_.end(), [](const auto& each) { return !IsPlan(each.second.front()); });
}

const NamedRequest* NamedMatching::Waiting(const std::string& name) const {
  const auto at = waiting_.find(name);
  return at == waiting_.end() ? nullptr : &at->second.front();
}

const NamedRequest* NamedMatching::Oldest() const {
  const NamedRequest* oldest = nullptr;
  for (const auto& [name, requests] : waiting_) {
    const NamedRequest& first = requests.front();
    if (!IsPlan(first) && (oldest == nullptr || first.submitted_ns < oldest->submitted_ns)) oldest = &first;
  }
  return oldest;
}

void NamedMatching::Describe(std::vector<std::string>* under_way) const {
  for (const auto& [name, requests] : waiting_) {
    const NamedRequest& first = requests.front();
    if (!IsPlan(first)) under_way->push_back(std::string(NameOf(first.announcement.kind)) + " '" + name + "'");
  }
}

}  // namespace smddp
