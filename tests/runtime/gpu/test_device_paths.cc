#include "native/buckets.h"
#include "native/bus.h"
#include "runtime/gpu/device_paths.h"

namespace smddp {
namespace {

// One of two ranks on two nodes, with its tensor on a GPU. NCCL is not to be had.
struct Rank {
  explicit Rank(int rank, const std::string& wanted = "auto", const Hosts& hosts = {"a", "b"})
      : bus(rank, hosts), parts(FabricOf(rank, hosts)) {
    env.gpu_stage = wanted;
    coordination = std::make_unique<Coordination>(bus, CpuCompute(), rounds, 0, 1024);
    paths = std::make_unique<DevicePaths>(bus, parts->fabric(), *coordination, devices, env);
    paths->SetOnAgreed([this](const std::string& plan) {
      if (paths->IsSettled(plan)) agreed.insert(plan);
      ++told;
    });
  }
  ~Rank() { paths->OnLeave(); }
  std::vector<TensorRef> Tensors(bool on_gpu) {
    return {{DType::kFloat32, {100}, data.data(), data.data(), on_gpu ? framework.Mark() : nullptr}};
  }
  bool IsAgreed(const std::string& plan, bool on_gpu) {
    return paths->IsAgreed(plan, [&] { return Tensors(on_gpu); });
  }
  // What it has told rank 0, once.
  Announcement Announced() {
    const auto announcement = bus.Take<Announcement>(/*to=*/0);
    CHECK(announcement.kind == RequestKind::kDevices);
    name = announcement.name;
    return announcement;
  }
  // Of its GPU.
  RankDeviceInfo Told() {
    RankDeviceInfo info;
    REQUIRE(Decode(Announced().data, &info));
    return info;
  }
  void Hear(const std::vector<std::string>& infos, const Status& status = Status::Ok()) {
    Verdict verdict;
    verdict.kind = RequestKind::kDevices;
    verdict.name = name;
    verdict.status = status;
    verdict.devices = infos;
    paths->OnVerdict(verdict);
  }
  // Both ranks bring a plan on GPUs, and start kNode, for which a rank alone on its node needs no NCCL.
  void AgreeOn(const std::string& plan) {
    paths->Expect(plan, /*asked=*/false);
    CHECK_FALSE(IsAgreed(plan, true));
    const std::string mine = Announced().data;
    Hear({mine, mine});
    if (paths->IsSettled(plan)) return;
    const std::string round = Announced().data;
    Hear({round, round});
  }
  QueuedDevice device, second{1};
  Framework framework{device}, other{second};
  std::vector<float> data = ValuesOf(1, 100);
  NotedBus bus;
  Env env;
  JoinRounds rounds{2};
  Devices devices;
  std::unique_ptr<FabricParts> parts;
  std::unique_ptr<Coordination> coordination;
  std::unique_ptr<DevicePaths> paths;
  std::set<std::string> agreed;
  int told = 0;  // how often
  std::string name;
};

RankDeviceInfo With(const std::string& uuid) {
  RankDeviceInfo info;
  info.has_device = !uuid.empty();
  info.device.uuid = info.device.bus_id = uuid;
  return info;
}

TEST_CASE("device paths: a rank describes its GPU once, and its buckets begin when all have started one method") {
  Rank rank(1);
  rank.paths->Expect("tape", /*asked=*/false);
  CHECK_FALSE(rank.IsAgreed("tape", true));
  CHECK_FALSE(rank.IsAgreed("tape", true));
  const RankDeviceInfo told = rank.Told();
  CHECK(told.has_device);
  CHECK(told.device.uuid == "GPU-0");
  CHECK(told.group_version == 0);
  CHECK_FALSE(told.why_no_group.empty());
  CHECK_FALSE(rank.paths->polls());
  rank.Hear({Encode(With("GPU-9")), Encode(told)});
  CHECK(rank.agreed.empty());
  CHECK(rank.paths->polls());
  const Announcement round = rank.Announced();
  CHECK(round.name == MethodAgreement::kName);
  MethodRound mine;
  REQUIRE(Decode(round.data, &mine));
  CHECK(mine.method == static_cast<int>(DeviceMethod::kNode));
  rank.Hear({round.data, round.data});
  CHECK((rank.agreed == std::set<std::string>{"tape"}));
  CHECK(rank.paths->IsSettled("tape"));
  CHECK_FALSE(rank.paths->polls());
  CHECK(rank.bus.failure().ok());
  const int before = rank.told;
  rank.name = "the GPUs of tape";
  rank.Hear({Encode(With("GPU-9")), Encode(told)});  // answered already
  CHECK(rank.told == before);
  rank.AgreeOn("second");  // needs no start
  CHECK(rank.bus.posted.empty());
  CHECK((rank.agreed == std::set<std::string>{"second", "tape"}));
  rank.paths->Forget("tape");
  CHECK_FALSE(rank.paths->IsSettled("tape"));
}

TEST_CASE("device paths: plans that come while a method is started are told when it has been") {
  Rank rank(1);
  for (const char* plan : {"a", "b"}) {
    rank.paths->Expect(plan, false);
    rank.IsAgreed(plan, true);
    const std::string mine = rank.Announced().data;
    rank.Hear({mine, mine});
    if (*plan == 'a') rank.bus.posted.clear();  // its round
  }
  CHECK(rank.bus.posted.empty());
  CHECK(rank.agreed.empty());
  rank.name = MethodAgreement::kName;
  MethodRound started;
  started.method = static_cast<int>(DeviceMethod::kNode);
  started.started = true;
  rank.Hear({Encode(started), Encode(started)});
  CHECK((rank.agreed == std::set<std::string>{"a", "b"}));
}

TEST_CASE("device paths: tensors in host memory are described as such, and those of a joined rank are not asked for") {
  Rank rank(1, "host");
  CHECK_FALSE(rank.paths->possible());
  rank.paths->Expect("tape", false);
  CHECK_FALSE(rank.IsAgreed("tape", /*on_gpu=*/false));
  CHECK_FALSE(rank.Told().has_device);
  rank.Hear({Encode(With("")), ""});
  CHECK((rank.agreed == std::set<std::string>{"tape"}));
  Rank foreign(1);
  foreign.paths->Expect("theirs", /*asked=*/true);
  CHECK_FALSE(foreign.IsAgreed("theirs", true));
  CHECK(foreign.bus.posted.empty());
  foreign.paths->AskAlso("theirs");
  CHECK_FALSE(foreign.IsAgreed("theirs", true));
  CHECK(foreign.bus.posted.size() == 1);
}

TEST_CASE("device paths: what the ranks say is checked, and an error ends the session") {
  const auto failure = [](const std::vector<std::string>& infos, bool on_gpu, const std::string& wanted = "auto",
                          const Status& status = Status::Ok()) {
    Rank rank(1, wanted);
    rank.paths->Expect("tape", false);
    rank.IsAgreed("tape", on_gpu);
    rank.Told();
    rank.Hear(infos, status);
    CHECK(rank.agreed.empty());
    return rank.bus.failure().message();
  };
  const std::string good = Encode(With("GPU-9"));
  CHECK(Begins(failure({good}, true), "Rank 0 sent unreadable descriptions of GPUs"));
  CHECK(Begins(failure({"?", good}, true), "Rank 0 sent an unreadable description of its GPU"));
  CHECK(Begins(failure({good, good}, /*on_gpu=*/false), "Rank 0 expects gradients on a GPU, but this rank has none."));
  CHECK(failure({good, good}, true, "auto", Status(Reason::kDisagreement, "no")) == "no");
  CHECK(Begins(failure({good, good}, true, "nccl"), "SMDDP_GPU_STAGE=nccl, but rank 0 (host a) cannot use NCCL"));
}

TEST_CASE("device paths: a rank with tensors on two GPUs is told so") {
  Rank rank(1);
  rank.paths->Expect("tape", false);
  rank.IsAgreed("tape", true);
  rank.paths->Expect("second", false);
  CHECK_FALSE(rank.paths->IsAgreed("second", [&] {
    std::vector<TensorRef> tensors = rank.Tensors(true);
    tensors.push_back({DType::kFloat32, {1}, rank.data.data(), rank.data.data(), rank.other.Mark()});
    return tensors;
  }));
  CHECK(Begins(rank.bus.failure().message(), "Rank 1 has tensors on GPU 1 and on GPU 0."));
}

TEST_CASE("device paths: the buckets of a plan take the agreed path, those in host memory none of a GPU") {
  Rank alone(0, "auto", {"a"});
  FusedView view(DType::kFloat32, DType::kFloat32, {{alone.data.data(), alone.data.data(), 100}}, {}, Scaling{0.5, 1},
                 CpuCompute());
  FusedCall call;
  call.view = &view;
  CHECK(Value(alone.paths->MayAllocate()));
  const auto reduce = [&](bool on_gpu) {
    TaskPtr task = alone.paths->BeginBucket("tape", *Algorithms().front(), call, alone.Tensors(on_gpu));
    CHECK(alone.paths->polls() == on_gpu);
    for (int step = 0; step < 100 && Value(task->Step()) != Progress::kDone; ++step) {
      alone.device.Run();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  };
  reduce(/*on_gpu=*/false);
  CHECK(alone.data[7] == ValuesOf(1, 100)[7] / 2);
  CHECK(alone.device.allocated == 0);
  reduce(/*on_gpu=*/true);
  alone.device.Run();
  CHECK(alone.data[7] == ValuesOf(1, 100)[7] / 4);
  CHECK(alone.device.allocated == 1);
  CHECK_FALSE(alone.paths->polls());
  Rank ended(0, "auto", {"a"});
  ended.paths->OnLeave();
  const TaskPtr task = ended.paths->BeginBucket("tape", *Algorithms().front(), call, ended.Tensors(true));
  CHECK(task->Step().status().reason() == Reason::kShutDown);
}

TEST_CASE("device paths: a plan that was not agreed for GPUs goes through host memory although another one was") {
  Rank rank(1);
  rank.AgreeOn("tape");
  REQUIRE(rank.paths->IsSettled("tape"));
  FusedView view(DType::kFloat32, DType::kFloat32, {{rank.data.data(), rank.data.data(), 100}}, {}, {}, CpuCompute());
  FusedCall call;
  call.view = &view;
  // With kNode the task records its stages itself, with kHost the exchange does, when its data have come.
  rank.device.late = true;
  for (const char* plan : {"tape", "another"}) {
    CAPTURE(std::string(plan));
    StageTimes times;
    call.times = &times;
    const TaskPtr task = rank.paths->BeginBucket(plan, *Algorithms().front(), call, rank.Tensors(true));
    Value(task->Step());
    CHECK((times.first_ns[StageTimes::kRailAllreduce] != 0) == (std::string(plan) == "tape"));
    rank.device.Run();
  }
  rank.device.late = false;
}

}  // namespace
}  // namespace smddp
