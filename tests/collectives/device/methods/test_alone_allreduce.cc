#include "native/buckets.h"

namespace smddp {
namespace {

TEST_CASE("alone allreduce: a single rank's average is scaled, in one step and without the host") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a"});
  DeviceBucketOf bucket(parts->fabric(), device, {300, 9}, 0, Scaling{0.25, 1});
  device.late = true;
  const TaskPtr task = AloneAllreduce(*bucket.context, Direct(), bucket.call);
  CHECK(task->Describe() == "waiting for the GPU");
  CHECK(Value(task->Step()) == Progress::kDone);  // the framework's stream waits, the engine does not
  bucket.Read();
  CHECK(bucket.read.empty());
  device.Run();
  std::vector<float> expected = ValuesOf(0, 309);
  for (float& value : expected) value /= 4;
  CHECK(bucket.read == expected);
  CHECK(device.copied.empty());
}

TEST_CASE("alone allreduce: the only ranks of their nodes sum between nodes") {
  QueuedDevice device;
  Fabrics fabrics({"a", "b", "c"});
  std::vector<std::unique_ptr<DeviceBucketOf>> buckets;
  std::vector<TaskPtr> tasks;
  for (int rank = 0; rank < 3; ++rank) {
    buckets.push_back(std::make_unique<DeviceBucketOf>(fabrics.of(rank), device, std::vector<int64_t>{5000, 1, 12},
                                                       /*on_host=*/rank == 1 ? 1 : 0));
    tasks.push_back(AloneAllreduce(*buckets[rank]->context, Direct(), buckets[rank]->call));
  }
  fabrics.Run(std::move(tasks), [&] { device.Run(); });
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    const std::vector<float> tail(buckets[rank]->tensors[2]);
    buckets[rank]->Read();
    device.Run();
    CHECK((buckets[rank]->read == SumOf(3, 5013)));
    if (rank == 1) CHECK(tail == buckets[rank]->tensors[2]);  // the piece in host memory was complete at once
  }
}

}  // namespace
}  // namespace smddp
