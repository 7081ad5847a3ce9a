#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "collectives/task.h"
#include "fusion/plan.h"
#include "python/errors.h"
#include "runtime/control/operation_id.h"
#include "runtime/control/running_tasks.h"

namespace nb = nanobind;

namespace smddp {
namespace {

nb::list Buckets(const std::vector<std::string>& dtypes, const std::vector<std::vector<int64_t>>& shapes,
                 const std::string& wire_dtype, int64_t bucket_bytes, const std::vector<int>& order) {
  if (dtypes.size() != shapes.size()) throw nb::value_error("As many dtypes as shapes are needed.");
  PlanSpec spec;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    spec.tensors.push_back({ValueOrThrow(DTypeFromName(dtypes[i])), shapes[i]});
  }
  spec.wire_dtype = ValueOrThrow(WireDTypeFromName(wire_dtype));
  if (!order.empty() && !IsPermutation(order, dtypes.size())) {
    throw nb::value_error("`order` must hold the number of every tensor once.");
  }
  nb::list buckets;
  for (const Bucket& bucket : PlanBuckets(spec, {bucket_bytes}, order)) {
    nb::list slots;
    for (const BucketSlot& slot : bucket.slots) slots.append(nb::make_tuple(slot.tensor, slot.offset, slot.elements));
    nb::dict row;
    row["dtype"] = NameOf(bucket.dtype);
    row["wire_dtype"] = NameOf(bucket.wire_dtype);
    row["elements"] = bucket.elements;
    row["slots"] = slots;
    buckets.append(row);
  }
  return buckets;
}

// Which of these tasks ends when, all of which can end at once: numbers of planned operations, none for other tasks.
std::vector<int> EndsOf(const std::vector<std::optional<uint32_t>>& tasks) {
  RunningTasks running;
  std::vector<int> ended;
  for (size_t i = 0; i < tasks.size(); ++i) {
    RunningTask task;
    task.done = [&ended, i](const Status&) { ended.push_back(static_cast<int>(i)); };
    task.planned_operation = tasks[i];
    running.Add(std::move(task));
  }
  while (!running.empty()) ValueOrThrow(running.Step());
  return ended;
}

class EndlessTask : public Task {
 public:
  explicit EndlessTask(Progress progress) : progress_(progress) {}
  Result<Progress> Step() override { return progress_; }
  std::string Describe() const override { return "endless"; }

 private:
  const Progress progress_;
};

// The round in which a task ends that could end in the first one, behind `ahead` that never do; they move or wait.
int RoundOfLast(int ahead, bool they_move) {
  RunningTasks running;
  const auto add = [&running](TaskPtr task, DoneCallback done) {
    RunningTask one;
    one.task = std::move(task);
    one.done = std::move(done);
    running.Add(std::move(one));
  };
  bool ended = false;
  for (int i = 0; i < ahead; ++i) {
    add(std::make_unique<EndlessTask>(they_move ? Progress::kMoved : Progress::kWaiting), [](const Status&) {});
  }
  add(nullptr, [&ended](const Status&) { ended = true; });
  int round = 0;
  for (; !ended && round < 1000; ++round) ValueOrThrow(running.Step());
  return round;
}

}  // namespace

void BindPlan(nb::module_& m) {
  m.def("plan_buckets", &Buckets, nb::arg("dtypes"), nb::arg("shapes"), nb::arg("wire_dtype"), nb::arg("bucket_bytes"),
        nb::arg("order") = std::vector<int>());
  m.def("planned_operation", &PlannedOperation, nb::arg("plan"), nb::arg("bucket"));
  m.def("ends_of_tasks", &EndsOf, nb::arg("tasks"));
  m.def("round_of_last_task", &RoundOfLast, nb::arg("ahead"), nb::arg("they_move"));
}

}  // namespace smddp
