// The plans of this process. Their numbers are part of traced graphs, so they outlive sessions: a session that
// receives a new number looks up the plan here.
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
  // Null for a number that was not assigned here (a graph of another process).
  std::shared_ptr<const PlanSpec> Find(int number) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int> numbers_;  // by PlanDigest
  std::map<std::string, int> of_key_;   // number of plans by key
  std::vector<std::shared_ptr<const PlanSpec>> specs_;
};

}  // namespace smddp
