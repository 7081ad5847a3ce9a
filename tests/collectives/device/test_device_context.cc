#include "collectives/device/device_context.h"
#include "native/buckets.h"

namespace smddp {
namespace {

const std::vector<RankDeviceInfo>& Infos() {
  static const std::vector<RankDeviceInfo> infos = [] {
    std::vector<RankDeviceInfo> made(4);
    made[0].group_id = "another id";
    made[2].group_id = "id";
    return made;
  }();
  return infos;
}

TEST_CASE("device context: the node's first rank has the group's id, and a new context needs none") {
  QueuedDevice device(1);
  QueuedGroups groups(device);
  const auto parts = FabricOf(3, {"a", "a", "b", "b"});
  DeviceContext context(parts->fabric(), device);
  REQUIRE(context.Make().ok());
  CHECK(context.method() == DeviceMethod::kHost);
  CHECK(Value(context.Ready()));
  CHECK(context.Open({DeviceMethod::kGroup, {}}, Infos(), nullptr).reason() == Reason::kInternal);
  CHECK(context.Open({DeviceMethod::kGroup, {}}, Infos(), &groups).ok());  // rank 2's
  CHECK(context.method() == DeviceMethod::kGroup);
  groups.ready = false;
  CHECK_FALSE(Value(context.Ready()));
  groups.ready = true;
  CHECK(Value(context.Ready()));
  DeviceContext other(parts->fabric(), device);
  CHECK(Has(other.Open({DeviceMethod::kGroup, {}}, std::vector<RankDeviceInfo>(4), &groups).message(),
            "Rank 2 sent no ncclUniqueId"));
}

TEST_CASE("device context: a rank alone on its node joins no group") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a", "b"});
  DeviceContext context(parts->fabric(), device);
  CHECK(context.Open({DeviceMethod::kGroup, {}}, Infos(), nullptr).ok());
  CHECK(Value(context.Ready()));
}

TEST_CASE("device context: an end after a failure aborts the group, another one does not") {
  for (const bool failed : {false, true}) {
    QueuedDevice device;
    QueuedGroups groups(device);
    const auto parts = FabricOf(2, {"a", "a", "b", "b"});
    DeviceContext context(parts->fabric(), device);
    REQUIRE(context.Make().ok());
    REQUIRE(context.Open({DeviceMethod::kGroup, {}}, Infos(), &groups).ok());
    context.End(failed);
    CHECK(groups.aborted == (failed ? 1 : 0));
    CHECK(groups.gone == 1);
    context.End(failed);  // again: nothing
    CHECK(groups.aborted == (failed ? 1 : 0));
  }
}

TEST_CASE("device context: a lost peer is not an error at once, any other one is") {
  QueuedDevice device(5);
  QueuedGroups groups(device);
  const auto parts = FabricOf(2, {"a", "a", "b", "b"});
  DeviceContext context(parts->fabric(), device);
  REQUIRE(context.Open({DeviceMethod::kGroup, {}}, Infos(), &groups).ok());
  groups.health = Status(Reason::kPeerLost, "gone");
  CHECK_FALSE(Value(context.GroupHealthy()));
  groups.health = Status(Reason::kInternal, "broken");
  CHECK(context.GroupHealthy().status().message() == "GPU 5 (Queued), NCCL: broken");
  CHECK(context.While("x", Status::Ok()).ok());
}

TEST_CASE("device context: which calls take the path between GPUs") {
  QueuedDevice device;
  const auto parts = FabricOf(0, {"a", "b"});
  DeviceContext context(parts->fabric(), device);
  std::vector<float> data(4);
  const auto takes = [&](DType dtype, DType wire, ReduceOp op) {
    const FusedView view(dtype, wire, {{data.data(), data.data(), 2}}, {}, {}, CpuCompute());
    FusedCall call;
    call.view = &view;
    call.op = op;
    return TakesDevicePath(context, call);
  };
  CHECK_FALSE(takes(DType::kFloat32, DType::kFloat32, ReduceOp::kSum));  // the method is kHost
  REQUIRE(context.Open({DeviceMethod::kGroup, {}}, Infos(), nullptr).ok());
  CHECK(takes(DType::kFloat32, DType::kFloat32, ReduceOp::kSum));
  CHECK(takes(DType::kFloat32, DType::kBFloat16, ReduceOp::kSum));
  CHECK_FALSE(takes(DType::kFloat32, DType::kFloat32, ReduceOp::kMax));
  CHECK_FALSE(takes(DType::kInt32, DType::kInt32, ReduceOp::kSum));
}

TEST_CASE("device context: buckets of any kind are summed, whatever path they take") {
  QueuedDevice device;
  Fabrics fabrics({"a", "b"});
  for (const bool through_host : {true, false}) {
    for (const int on_host : {0, 1, 2}) {
      std::vector<std::unique_ptr<DeviceBucketOf>> buckets;
      std::vector<TaskPtr> tasks;
      for (int rank = 0; rank < 2; ++rank) {
        buckets.push_back(std::make_unique<DeviceBucketOf>(fabrics.of(rank), device, std::vector<int64_t>{33, 900},
                                                           rank == 0 ? on_host : 0));
        REQUIRE(buckets[rank]->context->Open({DeviceMethod::kGroup, {}}, Infos(), nullptr).ok());
        buckets[rank]->call.through_host = through_host;
        tasks.push_back(DeviceAllreduce(*buckets[rank]->context, Direct(), buckets[rank]->call));
      }
      fabrics.Run(std::move(tasks), [&] { device.Run(); });
      for (auto& bucket : buckets) {
        bucket->Read();
        device.Run();
        CHECK((bucket->read == SumOf(2, 933)));
      }
    }
  }
}

}  // namespace
}  // namespace smddp
