// Named matching, on the side of the requesting rank: requests that wait for their coordinator's verdict.
//
// Threads: the engine's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/control/messages.h"
#include "runtime/control/running_task.h"

namespace smddp {

struct NamedRequest {
  Announcement announcement;
  // Makes the task once the ranks agree; null: there are no data to move (barrier, plan).
  std::function<Result<TaskPtr>(const Verdict&)> begin;
  DoneCallback done;
  std::shared_ptr<void> keep;
  int64_t submitted_ns = 0;
};

class NamedTable {
 public:
  // Marks the announcement when another request of that name is waiting; the coordinator turns that into an error on
  // all ranks. Returns the announcement to send.
  const Announcement& Add(NamedRequest request);
  // Removes the oldest request of that name, for its verdict; false when there is none.
  bool Take(const std::string& name, NamedRequest* request);
  void FailAll(const Status& why);
  // Fails the requests that wait for a verdict of `rank`, which has left ("Rank 2 has ended ...").
  void FailCoordinatedBy(int rank, int size, const std::string& who);
  // The oldest request of that name, or null.
  const NamedRequest* Waiting(const std::string& name) const;
  // "allreduce 'x'" for each waiting request, plans excluded.
  std::vector<std::string> Waiting() const;
  // Does a caller wait for an answer? (A plan that is not agreed on yet has no caller of its own.)
  bool waiting() const;
  // The oldest of those; null when there is none.
  const NamedRequest* Oldest() const;
  // When it was made; INT64_MAX when there is none.
  int64_t OldestNs() const;

 private:
  std::map<std::string, std::deque<NamedRequest>> waiting_;  // oldest first
};

}  // namespace smddp
