// Test access to training steps: every rank a session and a thread that hands over gradients, in an order and at a pace
// of its own.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "fusion/plan.h"
#include "inproc/cluster.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Every rank has `plans` equal plans of tensors with these many elements. A rank's data is one array by step, plan and
// tensor, reduced in place. `sequence` names tensors (plan * tensors + tensor) as they become ready; the n-th time a
// tensor comes belongs to step n. A step of a plan begins when its last one is reduced.
struct Steps {
  std::vector<int64_t> elements;
  int plans = 1;
  int wait_every = 0;  // after so many tensors the rank waits for all of its own, of all plans; 0: at the end only
  int pause_us = 0;    // at most, before each tensor

  int64_t elements_of_step() const {
    int64_t sum = 0;
    for (const int64_t each : elements) sum += each;
    return sum * plans;
  }
  int64_t OffsetOf(int item) const {
    const int tensors = static_cast<int>(elements.size());
    int64_t offset = elements_of_step() / plans * (item / tensors);
    for (int i = 0; i < item % tensors; ++i) offset += elements[i];
    return offset;
  }
};

class RankOfSteps {
 public:
  RankOfSteps(Session& session, const Steps& steps, float* data, std::vector<int> sequence, int seed)
      : session_(session), steps_(steps), data_(data), sequence_(std::move(sequence)), random_(seed) {}

  Status Run() {
    std::vector<int> plans;
    for (int plan = 0; plan < steps_.plans; ++plan) {
      PlanSpec spec;
      spec.key = "steps " + std::to_string(plan);
      for (const int64_t each : steps_.elements) spec.tensors.push_back({DType::kFloat32, {each}});
      spec.op = ReduceOp::kSum;
      SMDDP_ASSIGN_OR_RETURN(const int id, session_.RegisterPlan(spec));
      plans.push_back(id);
    }
    const int tensors = static_cast<int>(steps_.elements.size());
    std::vector<int> times(steps_.plans * tensors, 0);
    std::vector<std::vector<std::future<Status>>> waiting(steps_.plans);
    std::vector<int> begun(steps_.plans, 0);
    int submitted = 0;
    for (const int item : sequence_) {
      Pause();
      const int step = times[item]++, plan = item / tensors;
      if (step > std::exchange(begun[plan], step)) SMDDP_RETURN_IF_ERROR(WaitFor(&waiting[plan]));
      float* data = data_ + step * steps_.elements_of_step() + steps_.OffsetOf(item);
      const TensorRef tensor = {DType::kFloat32, {steps_.elements[item % tensors]}, data, data};
      auto done = std::make_shared<std::promise<Status>>();
      waiting[plan].push_back(done->get_future());
      PlannedTensor where = {plans[plan], item % tensors};
      where.run = static_cast<uint64_t>(step) + 1;
      session_.ReducePlanned(where, tensor, [done](const Status& status) { done->set_value(status); });
      if (steps_.wait_every > 0 && ++submitted % steps_.wait_every == 0) SMDDP_RETURN_IF_ERROR(WaitForAll(&waiting));
    }
    return WaitForAll(&waiting);
  }

 private:
  static Status WaitForAll(std::vector<std::vector<std::future<Status>>>* waiting) {
    for (auto& of_plan : *waiting) SMDDP_RETURN_IF_ERROR(WaitFor(&of_plan));
    return Status::Ok();
  }
  // The cluster's stall error ends every wait.
  static Status WaitFor(std::vector<std::future<Status>>* waiting) {
    Status first;
    for (auto& future : *waiting) {
      const Status status = future.get();
      if (first.ok()) first = status;
    }
    waiting->clear();
    return first;
  }
  void Pause() {
    if (steps_.pause_us == 0) return;
    const int us = std::uniform_int_distribution<int>(0, steps_.pause_us)(random_);
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

  Session& session_;
  const Steps& steps_;
  float* const data_;
  const std::vector<int> sequence_;
  std::mt19937 random_;
};

// Returns every rank's event log: (what, plan's key, index).
nb::list RunSteps(const std::vector<std::string>& hosts, const std::vector<int64_t>& elements, int plans,
                  const std::vector<Floats>& data, const std::vector<std::vector<int>>& sequences, int64_t bucket_bytes,
                  int wait_every, int pause_us, int seed, const std::string& gradient_order,
                  const std::string& rail_algorithm) {
  if (data.size() != hosts.size() || sequences.size() != hosts.size()) {
    throw nb::value_error("One array and one sequence per rank are needed.");
  }
  ClusterOptions options;
  options.host_of_rank = hosts;
  options.chunk_bytes = 4096;
  options.bucket_bytes = bucket_bytes;
  options.gradient_order = gradient_order;
  options.rail_algorithm = rail_algorithm;
  auto cluster = ValueOrThrow(StartInprocCluster(options));
  const Steps steps = {elements, plans, wait_every, pause_us};
  std::vector<Status> statuses(hosts.size());
  {
    nb::gil_scoped_release release;
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      Session& session = cluster->session(static_cast<int>(rank));
      session.diagnostics().TraceStart();
      threads.emplace_back([&, rank] {
        statuses[rank] =
            RankOfSteps(session, steps, data[rank].data(), sequences[rank], seed + static_cast<int>(rank)).Run();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Status& status : statuses) ThrowIfError(status);
  nb::list logs;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    nb::list log;
    for (const TraceEvent& event : cluster->session(static_cast<int>(rank)).diagnostics().TraceStop()) {
      log.append(nb::make_tuple(NameOf(event.what), event.name, event.index));
    }
    logs.append(log);
  }
  return logs;
}

// The tensors of every bucket of such a plan.
std::vector<std::vector<int>> BucketsOf(const std::vector<int64_t>& elements, int64_t bucket_bytes,
                                        const std::vector<int>& order) {
  PlanSpec spec;
  for (const int64_t each : elements) spec.tensors.push_back({DType::kFloat32, {each}});
  std::vector<std::vector<int>> buckets;
  for (const Bucket& bucket : PlanBuckets(spec, {bucket_bytes}, order)) {
    buckets.emplace_back();
    for (const BucketSlot& slot : bucket.slots) buckets.back().push_back(slot.tensor);
  }
  return buckets;
}

}  // namespace

void BindSteps(nb::module_& m) {
  m.def("buckets_of_steps", &BucketsOf, nb::arg("elements"), nb::arg("bucket_bytes"),
        nb::arg("order") = std::vector<int>());
  m.def("cluster_steps", &RunSteps, nb::arg("hosts"), nb::arg("elements"), nb::arg("plans"), nb::arg("data"),
        nb::arg("sequences"), nb::arg("bucket_bytes"), nb::arg("wait_every"), nb::arg("pause_us"), nb::arg("seed"),
        nb::arg("gradient_order"), nb::arg("rail_algorithm") = "auto");
}

}  // namespace smddp
