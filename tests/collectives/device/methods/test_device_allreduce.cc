#include "collectives/rail/quantised_exchange.h"
#include "native/buckets.h"

namespace smddp {
namespace {

constexpr DeviceMethod kMethods[] = {DeviceMethod::kHost, DeviceMethod::kNode, DeviceMethod::kAll};

TEST_CASE("device allreduce: every method sums on one node, between nodes, and where some ranks have no rail") {
  for (const DeviceMethod method : kMethods) {
    for (const Hosts& hosts :
         {Hosts{"a", "a"}, Hosts{"a", "b"}, Hosts{"a", "a", "b", "b"}, Hosts{"a", "a", "a", "b"}}) {
      for (const int64_t elements : {1, 97, 4001}) {
        CAPTURE(NameOf(method));
        CAPTURE(hosts.size());
        CAPTURE(elements);
        DeviceJobOf job(hosts, method);
        job.Begin({elements, 2, 300}, /*on_host=*/2);
        job.CheckSums();
        for (const auto& context : job.contexts) CHECK_FALSE(context->busy());
      }
    }
  }
}

TEST_CASE("device allreduce: ranks whose gradients are in host memory take part in the sums of the others") {
  DeviceJobOf job({"a", "a", "b"}, DeviceMethod::kHost);
  job.Begin({3000});
  std::vector<float> plain = ValuesOf(1, 3000);
  const FusedView view(DType::kFloat32, DType::kFloat32, {{plain.data(), plain.data(), 3000}}, {}, {}, CpuCompute());
  DeviceCall call;
  call.call.operation = 3;
  call.call.view = &view;
  call.works = {nullptr};
  job.tasks[1] = DeviceAllreduce(*job.contexts[1], *Algorithms().front(), call);
  job.device.copied.clear();
  job.Finish();
  CHECK(plain == SumOf(3, 3000));
}

TEST_CASE("device allreduce: what each method asks NCCL for") {
  const auto made = [](DeviceMethod method) {
    DeviceJobOf job({"a", "a", "b", "b"}, method);
    job.Begin({1000});
    job.Finish();
    std::vector<GroupCall::Kind> kinds;
    for (const auto& calls : job.groups[0]->made) {
      for (const GroupCall& call : calls) kinds.push_back(call.kind);
    }
    return kinds;
  };
  using Kind = GroupCall::Kind;
  CHECK(made(DeviceMethod::kHost).empty());
  CHECK((made(DeviceMethod::kAll) == std::vector<Kind>(4, Kind::kAllreduce)));
  CHECK((made(DeviceMethod::kNode) ==
         std::vector<Kind>{Kind::kReduceScatter, Kind::kReduceScatter, Kind::kAllgather, Kind::kAllgather}));
}

TEST_CASE("device allreduce: what NCCL cannot sum goes through host memory, sums in 8 bits with kNode between nodes") {
  for (const DeviceMethod method : {DeviceMethod::kNode, DeviceMethod::kAll}) {
    DeviceJobOf job({"a", "a", "b", "b"}, method);
    job.Begin({1000}, 0, 3, QuantisedExchange());
    job.Finish();
    CHECK(job.calls() == (method == DeviceMethod::kNode ? 8 : 0));
    const std::vector<float> sums = SumOf(4, 1000);
    for (const auto& bucket : job.buckets) {
      bucket->Read();
      job.device.Run();
      for (size_t i = 0; i < sums.size(); ++i) CHECK(bucket->read[i] == doctest::Approx(sums[i]).epsilon(0.02));
      CHECK(bucket->read == job.buckets[0]->read);
      CHECK(bucket->read != sums);  // rounded
    }
  }
  DeviceJobOf job({"a", "a"}, DeviceMethod::kAll);
  job.Begin({100});
  job.tasks.clear();
  for (int rank = 0; rank < 2; ++rank) {
    job.buckets[rank]->call.call.op = ReduceOp::kMax;
    job.tasks.push_back(DeviceAllreduce(*job.contexts[rank], *Algorithms().front(), job.buckets[rank]->call));
  }
  job.Finish();
  CHECK(job.calls() == 0);
  std::vector<float> most = ValuesOf(0, 100);
  for (int64_t i = 0; i < 100; ++i) most[i] = std::max(most[i], ValuesOf(1, 100)[i]);
  CHECK(job.buckets[1]->tensors[0] == most);
}

TEST_CASE("device allreduce: the task ends when the GPU has completed it, and not while a member is missing") {
  DeviceJobOf job({"a", "a"}, DeviceMethod::kAll);
  job.Begin({50});
  int later = 0;
  job.buckets[0]->framework.Put([&] { ++later; });  // the rest of the backward pass
  for (int round = 0; round < 20; ++round) {
    job.Step(0);
    job.device.Run();
  }
  CHECK(later == 1);
  REQUIRE(job.tasks[0] != nullptr);
  CHECK(job.tasks[0]->Describe() == "waiting for the GPU");
  CHECK(job.contexts[0]->busy());
  job.device.late = true;
  for (int round = 0; round < 20; ++round) {
    for (const int rank : {0, 1}) job.Step(rank);
  }
  REQUIRE(job.tasks[0] != nullptr);
  CHECK(job.buckets[0]->tensors[0] == ValuesOf(0, 50));
  job.device.late = false;
  job.CheckSums();
}

TEST_CASE("device allreduce: an error of NCCL on the GPU is one of the task, before the framework sees the sums") {
  DeviceJobOf job({"a", "a"}, DeviceMethod::kAll);
  job.Begin({50});
  job.groups[0]->health = Status(Reason::kInternal, "a link failed");
  std::vector<Status> told;
  for (int round = 0; round < 50 && told.size() < 2; ++round) {
    for (int rank = 0; rank < 2; ++rank) {
      if (job.tasks[rank] == nullptr) continue;
      Value(job.fabrics.parts[rank]->transport().Progress());
      const Result<Progress> progress = job.tasks[rank]->Step();
      if (progress.ok()) CHECK(*progress != Progress::kDone);
      if (progress.ok()) continue;
      told.push_back(progress.status());
      job.tasks[rank].reset();
    }
    job.device.Run();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  REQUIRE(told.size() == 2);
  for (const Status& status : told) CHECK(status.message() == "GPU 0 (Queued), NCCL: a link failed");
}

TEST_CASE("device allreduce: with kNode nothing is allocated while calls of NCCL wait for other ranks") {
  DeviceJobOf job({"a", "a", "b", "b"}, DeviceMethod::kNode);
  job.Begin({700}, 0, 3);
  for (int round = 0; round < 20; ++round) {  // ranks 0 and 2 alone: their calls run, and wait
    for (const int rank : {0, 2}) job.Step(rank);
    job.device.Run();
  }
  CHECK(job.calls() == 2);
  const int before = job.device.allocated;
  job.Begin({900}, /*on_host=*/1, 4);
  for (int round = 0; round < 20; ++round) {
    for (const int rank : {0, 2}) job.Step(rank);
    job.device.Run();
  }
  CHECK(job.device.allocated == before);
  for (const int rank : {0, 2}) CHECK(job.tasks[4 + rank]->Describe() == "waiting for the GPU");
  job.CheckSums();
  // From the second time on there is memory for both at once.
  const int after = job.device.allocated;
  CHECK(after > before);
  for (const uint32_t operation : {3, 4}) job.Begin({operation == 3 ? 700 : 900}, 0, operation);
  job.CheckSums();
  CHECK(job.device.allocated == after);
}

TEST_CASE("device allreduce: all memory of a bucket is there before its first call") {
  DeviceJobOf job({"a", "a", "b", "b"}, DeviceMethod::kNode);
  job.Begin({700}, /*on_host=*/1);
  for (int rank = 0; rank < 4; ++rank) job.Step(rank);
  const int begun = job.device.allocated;
  CHECK(begun == 2 * 2 + 2 * 4);  // packed and pinned; on odd ranks also those of the tensor in host memory
  job.CheckSums();
  CHECK(job.device.allocated == begun);
}

TEST_CASE("device allreduce: a single rank's average is scaled on the GPU, and nothing is copied") {
  ContextAlone alone;
  DeviceBucketOf bucket(*alone.context, alone.device, {300, 9}, 0, Scaling{0.25, 1});
  bucket.call.through_host = true;
  alone.device.late = true;
  TaskPtr task = DeviceAllreduce(*alone.context, *Algorithms().front(), bucket.call);
  CHECK(Value(task->Step()) != Progress::kDone);
  bucket.Read();
  alone.device.Run();
  CHECK(bucket.read == ValuesOf(0, 309));  // not yet handed back: the framework's work has not waited
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  CHECK(Value(task->Step()) == Progress::kDone);
  task.reset();
  bucket.Read();
  alone.device.Run();
  std::vector<float> expected = ValuesOf(0, 309);
  for (float& value : expected) value /= 4;
  CHECK(bucket.read == expected);
  CHECK(alone.device.copied.empty());
}

}  // namespace
}  // namespace smddp
