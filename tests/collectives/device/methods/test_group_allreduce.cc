#include "native/buckets.h"

namespace smddp {
namespace {

// The ranks of a job with a GPU each (streams of one device here), and a group for each node.
struct Job {
  explicit Job(const Hosts& hosts, const std::vector<int64_t>& elements) : fabrics(hosts) {
    std::vector<RankDeviceInfo> infos(hosts.size());
    for (RankDeviceInfo& info : infos) info.group_id = "id";
    for (int rank = 0; rank < fabrics.size(); ++rank) {
      const size_t node = fabrics.of(rank).topology.node_index();
      while (groups.size() <= node) groups.push_back(std::make_unique<QueuedGroups>(device));
      buckets.push_back(std::make_unique<DeviceBucketOf>(fabrics.of(rank), device, elements));
      REQUIRE(buckets.back()->context->Open({DeviceMethod::kGroup, {}}, infos, groups[node].get()).ok());
      tasks.push_back(GroupAllreduce(*buckets[rank]->context, Direct(), buckets[rank]->call));
    }
  }
  void CheckSums() {
    fabrics.Run(std::move(tasks), [this] { device.Run(); });
    for (int rank = 0; rank < fabrics.size(); ++rank) {
      CAPTURE(rank);
      buckets[rank]->Read();
      device.Run();
      CHECK((buckets[rank]->read == SumOf(fabrics.size(), static_cast<int64_t>(buckets[rank]->all().size()))));
    }
  }
  QueuedDevice device;
  Fabrics fabrics;
  std::vector<std::unique_ptr<QueuedGroups>> groups;
  std::vector<std::unique_ptr<DeviceBucketOf>> buckets;
  std::vector<TaskPtr> tasks;
};

TEST_CASE("group allreduce: sums on one node, between nodes, and with more ranks than rails") {
  for (const Hosts& hosts : {Hosts{"a", "a"}, Hosts{"a", "a", "b", "b"}, Hosts{"a", "a", "a", "b", "b"}}) {
    for (const int64_t elements : {1, 97, 4001}) {
      CAPTURE(hosts.size());
      CAPTURE(elements);
      Job job(hosts, {elements, 2});
      job.CheckSums();
    }
  }
}

TEST_CASE("group allreduce: the task ends when the GPU has completed it, and not while a member is missing") {
  Job job({"a", "a"}, {50});
  std::vector<TaskPtr> tasks = std::move(job.tasks);
  for (int round = 0; round < 20; ++round) {
    Value(job.fabrics.parts[0]->transport().Progress());
    CHECK(Value(tasks[0]->Step()) != Progress::kDone);
    job.device.Run();
  }
  CHECK(tasks[0]->Describe() == "waiting for the GPU");
  job.tasks = std::move(tasks);
  job.CheckSums();
}

TEST_CASE("group allreduce: an error of NCCL on the GPU is one of the task, before the framework sees the sums") {
  Job job({"a", "a"}, {50});
  job.groups[0]->health = Status(Reason::kInternal, "a link failed");
  Status status;
  for (int round = 0; round < 20 && status.ok(); ++round) {
    for (int rank = 0; rank < 2; ++rank) {
      Value(job.fabrics.parts[rank]->transport().Progress());
      const Result<Progress> progress = job.tasks[rank]->Step();
      if (!progress.ok()) status = progress.status();
      if (progress.ok()) CHECK(*progress != Progress::kDone);
    }
    job.device.Run();
  }
  CHECK(status.message() == "GPU 0 (Queued), NCCL: a link failed");
}

}  // namespace
}  // namespace smddp
