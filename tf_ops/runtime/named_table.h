// Named matching, this rank's side: requests that wait for the verdict of their name's coordinator.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/announcement.h"
#include "runtime/running_task.h"

namespace smddp {

struct NamedRequest {
  Announcement announcement;
  // Makes the task once the ranks agree; null: there is nothing to move (barrier, plan).
  std::function<Result<TaskPtr>(const Verdict&)> begin;
  DoneCallback done;
  std::shared_ptr<void> keep;
};

class NamedTable {
 public:
  // False, and `request` is left alone, when the name is in flight.
  bool Add(NamedRequest* request);
  // Takes the request that a verdict is about; false when there is none.
  bool Take(const std::string& name, NamedRequest* request);
  void FailAll(const Status& why);
  // Fails what waits for a verdict of `rank`, which has left ("Rank 2 has ended ...").
  void FailCoordinatedBy(int rank, int size, const std::string& who);
  // Does anybody wait for an answer? (Plans that wait to be agreed on keep nobody waiting by themselves.)
  bool waiting() const;

 private:
  std::map<std::string, NamedRequest> waiting_;
};

// Horovod's words, with the name.
Status DuplicateName(const Announcement& announcement);

}  // namespace smddp
