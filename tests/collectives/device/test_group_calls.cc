#include "collectives/device/group_calls.h"
#include "native/buckets.h"

namespace smddp {
namespace {

// Two members of a group and their streams; `data[rank]` are their numbers.
struct Both {
  Both() {
    for (int rank = 0; rank < 2; ++rank) {
      const Fabric& fabric = fabrics.of(rank);
      streams.push_back(Value(device.MakeStream()));
      events.push_back(std::make_unique<EventPool>(device));
      calls.push_back(std::make_unique<GroupCalls>(
          fabric, fabric.topology.all(), Value(groups.Join("id", 2, rank, device)), *events[rank], streams[rank]));
      data.push_back(ValuesOf(rank, 12));
    }
    device.late = true;
  }
  ~Both() {
    device.late = false;
    marks = {};
    calls.clear();
    events.clear();
    for (const DeviceStream stream : streams) device.DestroyStream(stream);
  }
  // Sums of three numbers, of which `number` is the first.
  void Submit(int rank, GroupCalls::Key key, int number, const PooledEventPtr& after) {
    float* const place = data[rank].data() + number;
    CHECK(calls[rank]->Submit(key, {GroupCall::Kind::kAllreduce, place, place, 3}, after).ok());
  }
  // Lets both look after their calls until `rank` has that one; null: it has not come.
  PooledEventPtr Made(int rank, GroupCalls::Key key, int rounds = 10) {
    for (int round = 0; round < rounds; ++round) {
      for (int each = 0; each < 2; ++each) {
        Value(fabrics.parts[each]->transport().Progress());
        if (PooledEventPtr made = Value(calls[each]->Made(key))) marks[{each, key}] = std::move(made);
      }
    }
    return marks[{rank, key}];
  }
  QueuedDevice device;
  Fabrics fabrics{{"a", "a"}};
  QueuedGroups groups{device};
  Framework framework{device};
  std::vector<DeviceStream> streams;
  std::vector<std::unique_ptr<EventPool>> events;
  std::vector<std::unique_ptr<GroupCalls>> calls;
  std::vector<std::vector<float>> data;
  std::map<std::pair<int, GroupCalls::Key>, PooledEventPtr> marks;
};

TEST_CASE("group calls: a call runs after what it was submitted with, and its mark after it") {
  Both both;
  both.framework.Compute(both.data[1].data(), ValuesOf(4, 12));
  for (const int rank : {0, 1}) both.Submit(rank, 7, 2, both.framework.Mark());
  const PooledEventPtr made = both.Made(0, 7);
  REQUIRE((made != nullptr));
  CHECK((both.Made(1, 7) != nullptr));
  CHECK_FALSE(Passed(made));
  both.device.Run();
  CHECK(Passed(made));
  std::vector<float> expected = ValuesOf(4, 12);
  for (int i = 2; i < 5; ++i) expected[i] += ValuesOf(0, 12)[i];
  CHECK(both.data[1] == expected);
  CHECK((Value(both.calls[0]->Made(7)) == nullptr));  // it is told once
}

TEST_CASE("group calls: the next call is made when NCCL has put the last one on the stream") {
  Both both;
  for (const int rank : {0, 1}) {
    for (const int key : {1, 2}) both.Submit(rank, key, 3 * key, both.framework.Mark());
  }
  both.groups.ready = false;
  CHECK((both.Made(0, 1) == nullptr));
  CHECK(both.groups.made.size() == 2);  // the first, of both
  CHECK(both.calls[0]->Describe() == "waiting for NCCL");
  CHECK_FALSE(Value(both.calls[0]->Joined()));
  both.groups.ready = true;
  CHECK((both.Made(0, 1) != nullptr));
  CHECK((both.Made(1, 2) != nullptr));
  CHECK(both.groups.made.size() == 4);
  CHECK(both.groups.made[3][0].into == both.data[1].data() + 6);
}

TEST_CASE("group calls: what becomes ready meanwhile is one launch, with one mark") {
  Both both;
  for (const int rank : {0, 1}) {
    for (const int key : {1, 2, 3, 0}) both.Submit(rank, key, 3 * key, both.framework.Mark());
  }
  for (const int key : {1, 2, 3, 0}) {
    for (const int rank : {0, 1}) CHECK((both.Made(rank, key) != nullptr));
  }
  std::vector<size_t> together;
  for (const auto& calls : both.groups.made) together.push_back(calls.size());
  CHECK(together == std::vector<size_t>{1, 1, 1, 1, 2, 2});
  CHECK((both.marks[{0, 3}] == both.marks[{0, 0}]));
  CHECK((both.marks[{0, 3}] != both.marks[{0, 2}]));
  both.device.Run();
  std::vector<float> sums = SumOf(2, 12);
  CHECK(both.data[0] == sums);
  CHECK(both.data[1] == sums);
}

TEST_CASE("group calls: they are idle when nothing is launched and the last one has run") {
  Both both;
  CHECK(Value(both.calls[0]->Idle()));
  for (const int rank : {0, 1}) both.Submit(rank, 1, 0, both.framework.Mark());
  CHECK(Value(both.calls[0]->Idle()));  // it has not been made
  both.groups.ready = false;
  CHECK((both.Made(0, 1) == nullptr));
  CHECK_FALSE(Value(both.calls[0]->Idle()));
  both.groups.ready = true;
  both.device.Run();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  CHECK_FALSE(Value(both.calls[0]->Idle()));  // it has run, but nobody has looked whether NCCL has launched it
  CHECK((both.Made(0, 1) != nullptr));
  both.marks = {};
  CHECK_FALSE(Value(both.calls[0]->Idle()));
  both.device.Run();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  CHECK(Value(both.calls[0]->Idle()));
}

TEST_CASE("group calls: that a peer is lost is told after a while, anything else at once") {
  Both both;
  both.groups.ready = Status(Reason::kInternal, "a link failed");
  for (const int rank : {0, 1}) both.Submit(rank, 1, 0, both.framework.Mark());
  Status told;
  for (int round = 0; round < 10 && told.ok(); ++round) {
    Value(both.fabrics.parts[0]->transport().Progress());
    told = both.calls[0]->Made(1).status();
  }
  CHECK(told.message() == "a link failed");
  CHECK(both.groups.made.size() == 1);

  Both lost;
  lost.groups.health = Status(Reason::kPeerLost, "no answer");
  const Deadline most = Deadline::After(20);
  const int64_t begun_ns = NowNs();
  Result<bool> healthy = lost.calls[0]->Healthy();
  REQUIRE(healthy.ok());
  CHECK_FALSE(*healthy);
  const bool checked = lost.calls[0]->Check().ok();
  CHECK((checked || NowNs() - begun_ns > 1'000'000'000));
  while (healthy.ok() && !most.passed()) healthy = lost.calls[0]->Healthy();
  CHECK(healthy.status().message() == "no answer");
  CHECK(NowNs() - begun_ns > 1'000'000'000);
  CHECK(lost.calls[0]->Joined().ok());
}

TEST_CASE("group calls: that a peer is lost is told after a while, too, when the call itself fails") {
  Both both;
  for (const int rank : {0, 1}) both.Submit(rank, 1, 0, both.framework.Mark());
  both.groups.call = Status(Reason::kPeerLost, "no answer");
  const int64_t begun_ns = NowNs();
  const Deadline most = Deadline::After(20);
  Status told;
  while (told.ok() && !most.passed()) {
    Value(both.fabrics.parts[0]->transport().Progress());
    const Result<PooledEventPtr> made = both.calls[0]->Made(1);
    told = made.status();
    if (told.ok()) CHECK((*made == nullptr));
  }
  CHECK(told.message() == "no answer");
  CHECK(NowNs() - begun_ns > 1'000'000'000);
}

TEST_CASE("group calls: the GPU is asked about errors from time to time") {
  Both both;
  const int64_t begun_ns = NowNs();
  for (int look = 0; look < 50; ++look) CHECK(both.calls[0]->Check().ok());
  const int looks = both.groups.looks;
  CHECK(looks >= 1);
  CHECK(looks <= 1 + (NowNs() - begun_ns) / 100'000'000);
  both.groups.health = Status(Reason::kInternal, "a link failed");
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  CHECK(both.calls[0]->Check().message() == "a link failed");
  CHECK(both.groups.looks == looks + 1);
  both.calls[0]->Abort();
  CHECK(both.groups.aborted == 1);
}

}  // namespace
}  // namespace smddp
