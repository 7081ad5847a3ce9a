#include "native/buckets.h"

namespace smddp {
namespace {

// Sums of the ranks whose gradients are on GPUs with those of `in_host_memory`, which take part as any host tensor.
void CheckSums(const Hosts& hosts, int64_t elements, int in_host_memory) {
  QueuedDevice device;
  Fabrics fabrics(hosts);
  std::vector<std::unique_ptr<DeviceBucketOf>> buckets(hosts.size());
  std::vector<float> plain = ValuesOf(in_host_memory, elements);
  const FusedView view(DType::kFloat32, DType::kFloat32, {{plain.data(), plain.data(), elements}}, {}, {},
                       CpuCompute());
  std::vector<TaskPtr> tasks;
  for (int rank = 0; rank < fabrics.size(); ++rank) {
    if (rank == in_host_memory) {
      FusedCall call;
      call.operation = 3;
      call.view = &view;
      tasks.push_back(HierarchicalAllreduce(fabrics.of(rank), Direct(), call));
      continue;
    }
    buckets[rank] = std::make_unique<DeviceBucketOf>(fabrics.of(rank), device, std::vector<int64_t>{elements - 8, 8},
                                                     /*on_host=*/rank % 2);
    tasks.push_back(HostAllreduce(*buckets[rank]->context, Direct(), buckets[rank]->call));
  }
  fabrics.Run(std::move(tasks), [&] { device.Run(); });
  const std::vector<float> sum = SumOf(fabrics.size(), elements);
  for (int rank = 0; rank < fabrics.size(); ++rank) {
    CAPTURE(rank);
    if (rank == in_host_memory) {
      CHECK((plain == sum));
      continue;
    }
    buckets[rank]->Read();
    device.Run();
    CHECK((buckets[rank]->read == sum));
  }
}

TEST_CASE("host allreduce: gradients on GPUs and in host memory are summed together") {
  CheckSums({"a", "a"}, 3000, /*in_host_memory=*/-1);
  CheckSums({"a", "a", "b"}, 3000, /*in_host_memory=*/1);
  CheckSums({"a", "b"}, 9, /*in_host_memory=*/0);
}

TEST_CASE("host allreduce: nothing is reduced before it has come from the GPU") {
  QueuedDevice device;
  Fabrics fabrics({"a", "a"});
  DeviceBucketOf bucket(fabrics.of(0), device, {600});
  device.late = true;
  {
    const TaskPtr task = HostAllreduce(*bucket.context, Direct(), bucket.call);
    CHECK(task->Describe() == "waiting for the GPU");
    CHECK(Value(task->Step()) == Progress::kMoved);
    for (int look = 0; look < 3; ++look) CHECK(Value(task->Step()) == Progress::kWaiting);
    device.Run();
    CHECK(Value(task->Step()) == Progress::kMoved);
  }
  device.late = false;
}

}  // namespace
}  // namespace smddp
