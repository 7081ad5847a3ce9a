// Buckets of gradients on QueuedDevices, and the tasks that reduce them.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/device_context.h"
#include "core/clock.h"
#include "native/fabrics.h"
#include "native/members.h"
#include "native/queued_device.h"

namespace smddp {

// One rank's bucket of float32 tensors: the first ones on the device, the last `on_host` in host memory.
struct DeviceBucketOf {
  // The framework computes its tensors after the call; values differ by rank and position.
  DeviceBucketOf(DeviceContext& context, QueuedDevice& device, const std::vector<int64_t>& elements, int on_host = 0,
                 Scaling after = {})
      : device(device), framework(device) {
    int64_t total = 0;
    for (const int64_t each : elements) total += each;
    const std::vector<float> values = ValuesOf(context.fabric().topology.rank(), total);
    const size_t on_device = elements.size() - on_host;
    std::vector<Piece> pieces;
    tensors.resize(elements.size());
    auto first = values.begin();
    for (size_t i = 0; i < elements.size(); ++i) {
      tensors[i].assign(elements[i], -1);
      pieces.push_back({tensors[i].data(), tensors[i].data(), elements[i]});
      const std::vector<float> mine(first, first + elements[i]);
      first += elements[i];
      if (i >= on_device) {
        std::copy(mine.begin(), mine.end(), tensors[i].begin());
      } else {
        framework.Compute(tensors[i].data(), mine);
      }
    }
    const PooledEventPtr work = framework.Mark();
    for (size_t i = 0; i < elements.size(); ++i) call.works.push_back(i < on_device ? work : nullptr);
    view = std::make_unique<FusedView>(DType::kFloat32, DType::kFloat32, pieces, Scaling(), after, CpuCompute());
    call.call.operation = 3;
    call.call.view = view.get();
    call.through_host = false;
  }
  ~DeviceBucketOf() {
    device.late = false;
    device.broken = Status::Ok();
    device.Run();  // while the tensors are there
    call.works.clear();
  }
  // All tensors one behind the other.
  std::vector<float> all() const {
    std::vector<float> values;
    for (const std::vector<float>& tensor : tensors) values.insert(values.end(), tensor.begin(), tensor.end());
    return values;
  }
  // What the framework reads with its next work.
  void Read() {
    framework.Put([this] { read = all(); });
  }

  QueuedDevice& device;
  Framework framework;
  std::vector<std::vector<float>> tensors;
  std::unique_ptr<FusedView> view;
  DeviceCall call;
  std::vector<float> read;
};

// The ranks of a job with contexts of one method, all on one device, and NCCL's groups that the method needs.
struct DeviceJobOf {
  DeviceJobOf(const Hosts& hosts, DeviceMethod method) : fabrics(hosts, /*chunk_bytes=*/1024) {
    for (int rank = 0; rank < fabrics.size(); ++rank) {
      const Topology& topology = fabrics.of(rank).topology;
      contexts.push_back(std::make_unique<DeviceContext>(fabrics.of(rank), device));
      REQUIRE(contexts.back()->Make().ok());
      const size_t node = method == DeviceMethod::kAll ? 0 : topology.node_index();
      while (groups.size() <= node) groups.push_back(std::make_unique<QueuedGroups>(device));
      const Group& members = method == DeviceMethod::kAll ? topology.all() : topology.node();
      if (method != DeviceMethod::kHost && members.size() > 1) {
        REQUIRE(contexts.back()->Join(members, "id", *groups[node]).ok());
      }
      contexts.back()->Use(method);
    }
  }
  ~DeviceJobOf() {
    tasks.clear();
    for (const auto& context : contexts) context->End(/*failed=*/true);
    device.late = false;
    device.Run();
    buckets.clear();
    contexts.clear();
  }
  // One more bucket for each rank, and the tasks that reduce it. `on_host`: tensors in host memory of odd ranks.
  void Begin(const std::vector<int64_t>& elements, int on_host = 0, uint32_t operation = 3,
             const AllreduceAlgorithm& rail = *Algorithms().front()) {
    for (int rank = 0; rank < fabrics.size(); ++rank) {
      DeviceContext& context = *contexts[rank];
      buckets.push_back(std::make_unique<DeviceBucketOf>(context, device, elements, rank % 2 == 1 ? on_host : 0));
      buckets.back()->call.call.operation = operation;
      tasks.push_back(DeviceAllreduce(context, rail, buckets.back()->call));
    }
  }
  // One step of a rank's tasks, the first bucket's first; true: something has moved.
  bool Step(int rank) {
    Value(fabrics.parts[rank]->transport().Progress());
    bool moved = false;
    for (size_t i = rank; i < tasks.size(); i += fabrics.size()) {
      if (tasks[i] == nullptr) continue;
      const Progress progress = Value(tasks[i]->Step());
      moved |= progress != Progress::kWaiting;
      if (progress == Progress::kDone) tasks[i].reset();
    }
    return moved;
  }
  // Steps all ranks for a while in which the GPU runs.
  void StepAll(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (int rank = 0; rank < fabrics.size(); ++rank) Step(rank);
      device.Run();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  bool finished() const {
    for (const TaskPtr& task : tasks) {
      if (task != nullptr) return false;
    }
    return true;
  }
  void Finish() {
    const Deadline deadline = Deadline::After(20);
    while (!finished()) {
      StepAll(1);
      REQUIRE_FALSE(deadline.passed());
    }
  }
  // Finishes, and compares what the frameworks read then.
  void CheckSums() {
    Finish();
    for (const auto& bucket : buckets) bucket->Read();
    device.Run();
    for (size_t i = 0; i < buckets.size(); ++i) {
      CAPTURE(i);
      CHECK((buckets[i]->read == SumOf(fabrics.size(), static_cast<int64_t>(buckets[i]->all().size()))));
    }
  }
  size_t calls() const {
    size_t all = 0;
    for (const auto& group : groups) all += group->made.size();
    return all;
  }

  QueuedDevice device;
  Fabrics fabrics;
  std::vector<std::unique_ptr<QueuedGroups>> groups;  // by node
  std::vector<std::unique_ptr<DeviceContext>> contexts;
  std::vector<std::unique_ptr<DeviceBucketOf>> buckets;  // of all ranks, bucket by bucket
  std::vector<TaskPtr> tasks;                            // likewise
};

// A context of a rank without any other.
struct ContextAlone {
  explicit ContextAlone(int index = 0, int rank = 0, const Hosts& hosts = {"a"})
      : device(index), parts(FabricOf(rank, hosts)), context(std::make_unique<DeviceContext>(parts->fabric(), device)) {
    REQUIRE(context->Make().ok());
  }
  QueuedDevice device;
  const std::unique_ptr<FabricParts> parts;
  std::unique_ptr<DeviceContext> context;
};

}  // namespace smddp
