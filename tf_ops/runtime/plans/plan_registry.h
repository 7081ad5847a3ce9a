// The plans of this process. Their numbers stay in traced graphs, so they outlive sessions: a session that meets a
// number for the first time asks here what it means.
//
// Threads: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fusion/plan.h"

namespace smddp {

class PlanRegistry {
 public:
  // The same spec again has the same number.
  int NumberOf(const PlanSpec& spec);
  // Is there no more than one plan of that key?
  bool IsOnly(const std::string& key) const;
  // Null for a number that was not given out here (a graph of another process).
  std::shared_ptr<const PlanSpec> Find(int number) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int> numbers_;  // by PlanDigest
  std::map<std::string, int> of_key_;   // how many
  std::vector<std::shared_ptr<const PlanSpec>> specs_;
};

}  // namespace smddp
