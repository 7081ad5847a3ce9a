#include "runtime/named/named_table.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "runtime/named/coordinator.h"

namespace smddp {

const Announcement& NamedTable::Add(NamedRequest request) {
  std::deque<NamedRequest>& same_name = waiting_[request.announcement.name];
  request.announcement.duplicate = !same_name.empty();
  same_name.push_back(std::move(request));
  return same_name.back().announcement;
}

bool NamedTable::Take(const std::string& name, NamedRequest* request) {
  const auto at = waiting_.find(name);
  if (at == waiting_.end()) return false;
  *request = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) waiting_.erase(at);
  return true;
}

bool NamedTable::waiting() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const auto& entry) { return entry.second.front().announcement.kind != RequestKind::kPlan; });
}

const NamedRequest* NamedTable::Waiting(const std::string& name) const {
  const auto at = waiting_.find(name);
  return at == waiting_.end() ? nullptr : &at->second.front();
}

std::vector<std::string> NamedTable::Waiting() const {
  std::vector<std::string> names;
  for (const auto& [name, requests] : waiting_) {
    const RequestKind kind = requests.front().announcement.kind;
    if (kind != RequestKind::kPlan) names.push_back(std::string(NameOf(kind)) + " '" + name + "'");
  }
  return names;
}

const NamedRequest* NamedTable::Oldest() const {
  const NamedRequest* oldest = nullptr;
  for (const auto& [name, requests] : waiting_) {
    const NamedRequest& first = requests.front();
    if (first.announcement.kind == RequestKind::kPlan) continue;
    if (oldest == nullptr || first.submitted_ns < oldest->submitted_ns) oldest = &first;
  }
  return oldest;
}

int64_t NamedTable::OldestNs() const {
  const NamedRequest* oldest = Oldest();
  return oldest != nullptr ? oldest->submitted_ns : std::numeric_limits<int64_t>::max();
}

void NamedTable::FailAll(const Status& why) {
  const auto waiting = std::move(waiting_);
  waiting_.clear();
  for (const auto& [name, requests] : waiting) {
    for (const NamedRequest& request : requests) request.done(why);
  }
}

void NamedTable::FailCoordinatedBy(int rank, int size, const std::string& who) {
  std::vector<NamedRequest> lost;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool mine = CoordinatorOf(at->second.front().announcement, size) == rank;
    if (mine) std::move(at->second.begin(), at->second.end(), std::back_inserter(lost));
    at = mine ? waiting_.erase(at) : std::next(at);
  }
  for (const NamedRequest& request : lost) {
    request.done(Status(Reason::kPeerLeft, who + " while " + NameOf(request.announcement.kind) + " '" +
                                               request.announcement.name + "' waited for it."));
  }
}

}  // namespace smddp
