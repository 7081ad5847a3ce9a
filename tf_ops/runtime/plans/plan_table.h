// The plans of this process, and those of them and of other ranks that a session knows.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/env/env.h"
#include "fusion/plan.h"
#include "runtime/plans/plan.h"

namespace smddp {

// The plans of this process. Their numbers are part of traced graphs, so they outlive sessions: a session that
// receives a new number looks up the plan here.
//
// Threads: any.
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
  std::vector<std::shared_ptr<const PlanSpec>> specs_;
};

// The plans that this rank knows. A plan has a name, by which the ranks match, a number on the wire, and any number
// of uses (plan, site) in traced graphs of this process.
//
// Threads: the engine's, except for known().
class PlanTable {
 public:
  // `bucket_bytes`: SMDDP_BUCKET_BYTES, or kAutoBytes.
  PlanTable(int64_t bucket_bytes, int nodes) : bucket_bytes_(bucket_bytes), nodes_(nodes) {}

  // Null: there is none.
  Plan* At(const PlannedTensor& where) const;
  Plan* Named(const std::string& name);
  Plan* Numbered(int number);
  std::map<std::string, Plan>& all() { return plans_; }
  const std::map<std::string, Plan>& all() const { return plans_; }
  std::vector<PlanWait> Waits() const;
  int64_t known() const { return known_; }  // any thread

  // The tensors of `where` belong to the plan of that name from now on. The plan is made unless there is one that was
  // not refused: then `*made` is false. A new one may be refused at once because of its number of buckets.
  Plan* Add(const PlannedTensor& where, const std::string& name, const PlanSpec& spec, bool* made);
  // Null: there is one that was not refused.
  Plan* AddForeign(const std::string& name, const PlanSpec& spec);
  void Forget(Plan* plan);

  // Step `step`, counted from 1, of the plan of that name is given up: its reductions end with `why`. The plan need
  // not be known yet.
  void Void(const std::string& name, int64_t step, const Status& why);

 private:
  Plan* Make(const std::string& name, const PlanSpec& spec);

  const int64_t bucket_bytes_;
  const int nodes_;
  std::map<std::string, Plan> plans_;                      // by name
  std::map<std::pair<int, int>, Plan*> local_;             // by plan and site: those that this rank uses
  std::map<std::string, std::map<int64_t, Status>> void_;  // of plans that are not known here, by step
  std::atomic<int64_t> known_{0};
};

}  // namespace smddp
