#include "collectives/device/methods/device_bucket.h"
#include "native/buckets.h"

namespace smddp {
namespace {

// The ranks' buckets, packed, and stepped through Rail until all are done.
struct Job {
  Job(const Hosts& hosts, int64_t elements) : fabrics(hosts, /*chunk_bytes=*/1024) {
    for (int rank = 0; rank < fabrics.size(); ++rank) {
      each.push_back(std::make_unique<DeviceBucketOf>(fabrics.of(rank), device, std::vector<int64_t>{elements - 3, 3}));
      buckets.push_back(std::make_unique<DeviceBucket>(*each.back()->context, Direct(), each.back()->call));
      REQUIRE(buckets.back()->Start(elements).ok());
    }
  }
  ~Job() {
    for (auto& bucket : buckets) bucket->memory().GiveBack(nullptr);
    device.Run();
  }
  void Rail() {
    std::vector<bool> done(buckets.size());
    for (int round = 0; round < 1000 && std::count(done.begin(), done.end(), false) > 0; ++round) {
      for (int rank = 0; rank < fabrics.size(); ++rank) {
        Value(fabrics.parts[rank]->transport().Progress());
        if (!done[rank]) done[rank] = Value(buckets[rank]->Rail(buckets[rank]->packed())) == Progress::kDone;
      }
      device.Run();
    }
    CHECK(std::count(done.begin(), done.end(), false) == 0);
  }
  std::vector<float> Packed(int rank) const {
    const auto* const data = reinterpret_cast<const float*>(buckets[rank]->at(0));
    return {data, data + buckets[rank]->elements()};
  }
  QueuedDevice device;
  Fabrics fabrics;
  std::vector<std::unique_ptr<DeviceBucketOf>> each;
  std::vector<std::unique_ptr<DeviceBucket>> buckets;
};

TEST_CASE("device bucket: on one node there is nothing to sum between nodes") {
  Job job({"a", "a"}, 40);
  CHECK(Value(job.buckets[0]->Rail(job.buckets[0]->packed())) == Progress::kDone);
  CHECK((job.buckets[0]->sums() == job.buckets[0]->packed()));
  CHECK(job.device.copied.empty());
}

TEST_CASE("device bucket: each rank's shard is summed with those of the other nodes, and only that") {
  Job job({"a", "a", "b", "b"}, 2003);
  job.Rail();
  for (int rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    CHECK(Value(job.buckets[rank]->sums()->Passed()));
    std::vector<float> expected = ValuesOf(rank, 2003);
    const std::vector<float> theirs = ValuesOf(rank ^ 2, 2003);
    const Range mine = job.buckets[rank]->my_shard();
    CHECK(mine.size() > 900);
    for (int64_t i = mine.begin; i < mine.end; ++i) expected[i] += theirs[i];
    CHECK(job.Packed(rank) == expected);
  }
}

TEST_CASE("device bucket: the shards cover the bucket; more ranks than the smallest node has reduce nothing") {
  Job job({"a", "a", "a", "b", "b"}, 1001);
  const DeviceBucket& bucket = *job.buckets[0];
  CHECK(bucket.shard_of(0).begin == 0);
  CHECK(bucket.shard_of(1).begin == bucket.shard_of(0).end);
  CHECK(bucket.shard_of(1).end == 1001);
  CHECK(bucket.shard_of(2).empty());
  CHECK(bucket.shard_of(2).begin == 1001);
  job.Rail();
  CHECK(job.Packed(2) == ValuesOf(2, 1001));
}

}  // namespace
}  // namespace smddp
