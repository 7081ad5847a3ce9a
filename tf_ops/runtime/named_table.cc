#include "runtime/named_table.h"

#include <algorithm>

#include "runtime/coordinator.h"

namespace smddp {

bool NamedTable::Add(NamedRequest* request) {
  const std::string name = request->announcement.name;
  if (waiting_.count(name) != 0) return false;
  waiting_.emplace(name, std::move(*request));
  return true;
}

bool NamedTable::Take(const std::string& name, NamedRequest* request) {
  const auto at = waiting_.find(name);
  if (at == waiting_.end()) return false;
  *request = std::move(at->second);
  waiting_.erase(at);
  return true;
}

bool NamedTable::waiting() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const auto& entry) { return entry.second.announcement.kind != RequestKind::kPlan; });
}

void NamedTable::FailAll(const Status& why) {
  std::map<std::string, NamedRequest> waiting = std::move(waiting_);
  waiting_.clear();
  for (auto& [name, request] : waiting) request.done(why);
}

void NamedTable::FailCoordinatedBy(int rank, int size, const std::string& who) {
  std::vector<NamedRequest> lost;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool mine = CoordinatorOf(at->second.announcement, size) == rank;
    if (mine) lost.push_back(std::move(at->second));
    at = mine ? waiting_.erase(at) : std::next(at);
  }
  for (NamedRequest& request : lost) {
    request.done(Status(Code::kUnavailable, who + " while " + NameOf(request.announcement.kind) + " '" +
                                                request.announcement.name + "' waited for it."));
  }
}

Status DuplicateName(const Announcement& announcement) {
  return Status(Code::kInvalidArgument,
                std::string("Requested to ") + NameOf(announcement.kind) +
                    " a tensor with the same name as another tensor that is currently being processed: '" +
                    announcement.name + "'. Give each its own `name`.");
}

}  // namespace smddp
