#include "collectives/device/device_context.h"
#include "native/buckets.h"

namespace smddp {
namespace {

const Hosts kTwoNodes = {"a", "a", "b", "b"};

TEST_CASE("device context: a rank joins as the member that it is in the group") {
  ContextAlone rank(1, /*rank=*/3, kTwoNodes);
  QueuedGroups groups(rank.device);
  const Topology& topology = rank.parts->fabric().topology;
  CHECK(rank.context->method() == DeviceMethod::kHost);
  CHECK((rank.context->calls() == nullptr));
  CHECK(rank.context->Join(topology.node(), "another", groups).message() == "another id");
  CHECK((rank.context->calls() == nullptr));
  CHECK(rank.context->Join(topology.node(), "id", groups).ok());
  CHECK(rank.context->Join(topology.all(), "id", groups).ok());
  CHECK(groups.joined == std::vector<std::pair<int, int>>{{2, 1}, {4, 3}});
  CHECK(groups.gone == 1);
  groups.ready = false;
  CHECK_FALSE(Value(rank.context->calls()->Joined()));
  groups.ready = true;
  CHECK(Value(rank.context->calls()->Joined()));
  rank.context->End(/*failed=*/false);
}

TEST_CASE("device context: an end after a failure aborts the group, another one does not") {
  for (const bool failed : {false, true}) {
    ContextAlone rank(0, 2, kTwoNodes);
    QueuedGroups groups(rank.device);
    REQUIRE(rank.context->Join(rank.parts->fabric().topology.node(), "id", groups).ok());
    rank.context->End(failed);
    CHECK(groups.aborted == (failed ? 1 : 0));
    CHECK(groups.gone == 1);
    CHECK((rank.context->calls() == nullptr));
    rank.context->End(failed);  // again: nothing
    CHECK(groups.aborted == (failed ? 1 : 0));
    REQUIRE(rank.context->Join(rank.parts->fabric().topology.all(), "id", groups).ok());
    rank.context->End(failed);
    CHECK(groups.gone == 2);
  }
}

TEST_CASE("device context: before it ends its work on the GPU runs to the end") {
  ContextAlone rank(0, 2, kTwoNodes);
  QueuedGroups groups(rank.device);
  REQUIRE(rank.context->Join(rank.parts->fabric().topology.node(), "id", groups).ok());
  int looks = 0, gone_before = -1;
  CHECK(rank.device
            .Put(rank.context->streams().unpack(),
                 [&] {
                   gone_before = groups.gone;
                   return ++looks > 3;
                 })
            .ok());
  rank.context->End(/*failed=*/false);
  CHECK(looks == 4);
  CHECK(gone_before == 0);
  CHECK(groups.aborted == 0);
}

TEST_CASE("device context: with kNode memory is allocated only while no call of NCCL runs") {
  for (const DeviceMethod method : {DeviceMethod::kHost, DeviceMethod::kNode, DeviceMethod::kAll}) {
    CAPTURE(NameOf(method));
    DeviceJobOf job({"a", "a"}, method);
    for (const auto& context : job.contexts) CHECK(Value(context->MayAllocate()));
    job.Begin({40});
    for (int round = 0; round < 10; ++round) {
      job.Step(0);
      job.device.Run();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    CHECK(Value(job.contexts[0]->MayAllocate()) == (method != DeviceMethod::kNode));
    CHECK(Value(job.contexts[1]->MayAllocate()));  // it has not called
    job.Finish();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    for (const auto& context : job.contexts) CHECK(Value(context->MayAllocate()));
  }
  ContextAlone alone(0, 0, {"a", "b"});
  alone.context->Use(DeviceMethod::kNode);  // without a group
  CHECK(Value(alone.context->MayAllocate()));
}

TEST_CASE("device context: memory that MPI may write into is kept until the process ends") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a"});
  {
    DeviceContext context(parts->fabric(), device);
    REQUIRE(context.Make().ok());
    BufferLease packed, pinned;
    CHECK(Value(context.device_buffers().Take(&packed, 10, context.streams().pack())));
    CHECK(Value(context.pinned_buffers().Take(&pinned, 10, std::nullopt)));
    context.KeepMemory();
  }
  CHECK(device.memory.size() == 2);
  for (void* const block : std::set<void*>(device.memory)) device.Free(block);
}

TEST_CASE("device context: errors say what was done on which GPU") {
  QueuedDevice device(5);
  const auto parts = FabricOf(0, {"a"});
  DeviceContext context(parts->fabric(), device);
  device.broken = Status(Reason::kNoResources, "no more");
  const Status status = context.Make();
  CHECK(status.reason() == Reason::kNoResources);
  CHECK(status.message() == "GPU 5 (Queued), making streams: no more");
  CHECK(context.While("x", Status::Ok()).ok());
  device.broken = Status::Ok();
}

}  // namespace
}  // namespace smddp
