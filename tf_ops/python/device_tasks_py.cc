// Test access to reductions on GPUs without sessions: what ranks' cards lead to, and buckets of ranks that are threads.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/device/cards.h"
#include "collectives/device/lane.h"
#include "core/clock.h"
#include "python/bindings.h"
#include "runtime/devices.h"
#include "runtime/fabric_parts.h"
#include "transport/inproc/hub.h"
#include "transport/shm/segment.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// --- Cards ---

DeviceCard CardOf(const nb::dict& fields) {
  DeviceCard card;
  const auto text = [&](const char* name, std::string* into) {
    if (fields.contains(name)) *into = nb::cast<std::string>(fields[name]);
  };
  const auto number = [&](const char* name, int* into) {
    if (fields.contains(name)) *into = nb::cast<int>(fields[name]);
  };
  card.has_device = fields.contains("uuid");
  text("uuid", &card.device.uuid);
  text("name", &card.device.name);
  text("bus_id", &card.device.bus_id);
  number("index", &card.device.index);
  number("visible", &card.visible);
  text("wanted", &card.wanted);
  number("group_version", &card.group_version);
  text("why_no_group", &card.why_no_group);
  text("group_id", &card.group_id);
  if (fields.contains("can_export")) card.device.can_export = nb::cast<bool>(fields["can_export"]);
  return card;
}

nb::dict FieldsOf(const DeviceCard& card) {
  nb::dict fields;
  if (card.has_device) fields["uuid"] = card.device.uuid;
  fields["name"] = card.device.name;
  fields["bus_id"] = card.device.bus_id;
  fields["index"] = card.device.index;
  fields["visible"] = card.visible;
  fields["wanted"] = card.wanted;
  fields["group_version"] = card.group_version;
  fields["why_no_group"] = card.why_no_group;
  fields["group_id"] = card.group_id;
  fields["can_export"] = card.device.can_export;
  return fields;
}

nb::tuple DecideFor(const std::vector<std::string>& hosts, const nb::list& cards) {
  std::vector<DeviceCard> decoded;
  for (const nb::handle card : cards) decoded.push_back(CardOf(nb::cast<nb::dict>(card)));
  const Topology topology = ValueOrThrow(Topology::Build(0, hosts));
  const DeviceDecision decision = ValueOrThrow(Decide(topology, decoded));
  return nb::make_tuple(NameOf(decision.stage), decision.warnings);
}

nb::bytes Encoded(const nb::dict& card) {
  const std::string text = Encode(CardOf(card));
  return nb::bytes(text.data(), text.size());
}

nb::object Decoded(const nb::bytes& text) {
  DeviceCard card;
  if (!Decode(std::string(text.c_str(), text.size()), &card)) return nb::none();
  return FieldsOf(card);
}

// --- Buckets ---

struct Job {
  DeviceStage stage = DeviceStage::kHost;
  DType dtype = DType::kFloat32, wire = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Scaling before, after;
  std::vector<std::vector<int64_t>> buckets;     // elements of each piece
  std::vector<std::vector<int>> orders;          // of the buckets, by rank
  std::vector<std::vector<int>> in_host_memory;  // pieces, counted through the buckets, by rank
  std::vector<int> devices;                      // by rank
  Chunking chunking;
  int steps = 1;
  int pause_us = 0;
  double seconds = 20;
  const AllreduceAlgorithm* rail = nullptr;
};

// Where all ranks wait for one another, and hear of an error.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return round_ != round; });
  }
  std::atomic<bool> failed{false};

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0, round_ = 0;
};

// One rank: what a framework and an engine would do, in one thread.
class DeviceRank {
 public:
  DeviceRank(const Job& job, std::unique_ptr<FabricParts> parts, Meeting& meeting, std::byte* data, size_t bytes)
      : job_(job),
        parts_(std::move(parts)),
        rank_(parts_->fabric().topology.rank()),
        meeting_(meeting),
        data_(data),
        bytes_(bytes),
        random_(rank_ + 1) {}

  // Reduces `data` in place.
  Status Run(const std::vector<DeviceCard>& cards) {
    Status status = Prepare(cards);
    if (!status.ok()) meeting_.failed = true;
    meeting_.Wait();
    for (int step = 0; status.ok() && step < job_.steps; ++step) status = Step(step);
    if (!status.ok()) meeting_.failed = true;
    parts_->world().Abort();
    tasks_.clear();
    if (lane_ != nullptr) lane_->End(/*failed=*/!status.ok());
    meeting_.Wait();
    lane_ = nullptr;
    meeting_.Wait();
    Clean();
    return status;
  }

 private:
  struct Running {
    TaskPtr task;
    std::unique_ptr<FusedView> view;
  };

  Status Prepare(const std::vector<DeviceCard>& cards) {
    DevicePlugin* const plugin = TheDevices().plugin();
    if (plugin == nullptr) return Status(Code::kFailedPrecondition, "There is no GPU library.");
    SMDDP_ASSIGN_OR_RETURN(device_, plugin->Open(job_.devices[rank_]));
    SMDDP_ASSIGN_OR_RETURN(lane_, MakeDeviceLane(parts_->fabric(), *device_));
    SMDDP_RETURN_IF_ERROR(lane_->Open(job_.stage, cards, TheDevices().groups(nullptr)));
    SMDDP_RETURN_IF_ERROR(Until([this] { return lane_->Ready(); }));
    SMDDP_ASSIGN_OR_RETURN(stream_, device_->MakeStream());
    SMDDP_ASSIGN_OR_RETURN(event_, device_->MakeEvent());
    SMDDP_ASSIGN_OR_RETURN(void* const tensors, device_->Allocate(std::max<size_t>(bytes_, 1)));
    tensors_ = static_cast<std::byte*>(tensors);
    SMDDP_ASSIGN_OR_RETURN(void* const pinned, device_->AllocatePinned(std::max<size_t>(bytes_, 1)));
    pinned_ = static_cast<std::byte*>(pinned);
    return Status::Ok();
  }

  void Clean() {
    if (device_ == nullptr) return;
    if (tensors_ != nullptr) device_->Free(tensors_);
    if (pinned_ != nullptr) device_->FreePinned(pinned_);
    if (event_ != nullptr) device_->DestroyEvent(event_);
    if (stream_ != nullptr) device_->DestroyStream(stream_);
  }

  // Polls until `done` says true, an error, or another rank has one.
  template <class Done>
  Status Until(Done done) {
    const Deadline deadline = Deadline::After(job_.seconds);
    while (true) {
      SMDDP_ASSIGN_OR_RETURN(bool moved, parts_->world().Progress());
      const Result<bool> is_done = done();
      SMDDP_RETURN_IF_ERROR(is_done.status());
      if (*is_done) return Status::Ok();
      if (meeting_.failed) return Status(Code::kAborted, "Another rank has failed.");
      if (deadline.passed()) return Status(Code::kDeadlineExceeded, "Stands still: " + Describe());
      if (moved) continue;
      parts_->node().Evacuate();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  std::string Describe() const {
    std::string text;
    for (const Running& running : tasks_) {
      if (running.task != nullptr) text += running.task->Describe() + "; ";
    }
    return text;
  }

  Status Step(int step) {
    // The framework computes the gradients ...
    std::memcpy(pinned_, data_, bytes_);
    SMDDP_RETURN_IF_ERROR(device_->Copy(tensors_, pinned_, bytes_, stream_));
    host_.assign(data_, data_ + bytes_);
    // ... and hands them over.
    size_t left = 0;
    for (const int bucket : job_.orders[rank_]) {
      if (job_.pause_us > 0) Pause();
      SMDDP_RETURN_IF_ERROR(Begin(bucket));
      ++left;
      SMDDP_RETURN_IF_ERROR(StepTasks(&left));
    }
    SMDDP_RETURN_IF_ERROR(Until([&]() -> Result<bool> {
      SMDDP_RETURN_IF_ERROR(StepTasks(&left));
      return left == 0;
    }));
    tasks_.clear();
    // What the framework does next sees the results.
    SMDDP_RETURN_IF_ERROR(device_->Copy(pinned_, tensors_, bytes_, stream_));
    SMDDP_RETURN_IF_ERROR(device_->Record(event_, stream_));
    SMDDP_RETURN_IF_ERROR(Until([this] { return device_->Done(event_); }));
    ForEachPiece([&](int number, size_t offset, size_t bytes) {
      if (InHostMemory(number)) std::memcpy(pinned_ + offset, host_.data() + offset, bytes);
    });
    if (step == 0) first_.assign(pinned_, pinned_ + bytes_);
    if (std::memcmp(first_.data(), pinned_, bytes_) != 0) {
      return Status(Code::kInternal, "Step " + std::to_string(step) + " gave other bits than step 0.");
    }
    if (step + 1 == job_.steps) std::memcpy(data_, pinned_, bytes_);
    return Status::Ok();
  }

  void Pause() {
    const int us = std::uniform_int_distribution<int>(0, job_.pause_us)(random_);
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

  bool InHostMemory(int number) const {
    const std::vector<int>& those = job_.in_host_memory[rank_];
    return std::find(those.begin(), those.end(), number) != those.end();
  }

  template <class Visit>
  void ForEachPiece(Visit visit) const {
    size_t offset = 0;
    int number = 0;
    for (const auto& bucket : job_.buckets) {
      for (const int64_t elements : bucket) {
        const size_t bytes = elements * SizeOf(job_.dtype);
        visit(number++, offset, bytes);
        offset += bytes;
      }
    }
  }

  Status Begin(int bucket) {
    int first = 0;
    for (int i = 0; i < bucket; ++i) first += static_cast<int>(job_.buckets[i].size());
    const int end = first + static_cast<int>(job_.buckets[bucket].size());
    DeviceCall call;
    std::vector<Piece> pieces;
    Status begun;
    ForEachPiece([&](int number, size_t offset, size_t bytes) {
      if (number < first || number >= end) return;
      std::byte* const at = (InHostMemory(number) ? host_.data() : tensors_) + offset;
      pieces.push_back({at, at, static_cast<int64_t>(bytes / SizeOf(job_.dtype))});
      if (bytes == 0) return;
      std::shared_ptr<const DeviceWork> work;
      if (!InHostMemory(number)) {
        Result<std::shared_ptr<const DeviceWork>> made = DeviceWork::Begin(*device_, stream_);
        if (made.ok()) {
          work = *made;
        } else {
          begun = made.status();
        }
      }
      call.works.push_back(work);
    });
    SMDDP_RETURN_IF_ERROR(begun);
    auto view =
        std::make_unique<FusedView>(job_.dtype, job_.wire, pieces, job_.before, job_.after, parts_->fabric().compute);
    call.call = {static_cast<uint32_t>(bucket), view.get(), job_.op};
    call.chunking = job_.chunking;
    call.through_host = job_.stage == DeviceStage::kHost;
    tasks_.push_back({DeviceAllreduce(*lane_, *job_.rail, call), std::move(view)});
    return Status::Ok();
  }

  Status StepTasks(size_t* left) {
    for (Running& running : tasks_) {
      if (running.task == nullptr) continue;
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, running.task->Step());
      if (progress != Progress::kDone) continue;
      running.task.reset();
      --*left;
    }
    return Status::Ok();
  }

  const Job& job_;
  const std::unique_ptr<FabricParts> parts_;
  const int rank_;
  Meeting& meeting_;
  std::byte* const data_;
  const size_t bytes_;
  std::mt19937 random_;
  Device* device_ = nullptr;
  std::unique_ptr<DeviceLane> lane_;
  DeviceStream stream_ = nullptr;  // the framework's
  DeviceEvent event_ = nullptr;
  std::byte *tensors_ = nullptr, *pinned_ = nullptr;
  std::vector<std::byte> host_, first_;
  std::vector<Running> tasks_;
};

// Every rank's error, or "".
std::vector<std::string> RunAll(const Job& job, const std::vector<std::string>& hosts, const std::vector<Bytes>& data) {
  const int size = static_cast<int>(hosts.size());
  Env env;
  env.chunk_bytes = job.chunking.bytes;
  env.cpu_isa = "auto";
  InprocHub hub(size);
  const auto memory = std::make_shared<std::vector<Segment>>();
  std::vector<Topology> topologies;
  for (int rank = 0; rank < size; ++rank) {
    topologies.push_back(ValueOrThrow(Topology::Build(rank, hosts)));
    memory->push_back(ValueOrThrow(Segment::Private(FabricParts::LayoutFor(topologies[rank], env).total_bytes)));
  }
  std::vector<DeviceCard> cards(size);
  DeviceGroupLibrary* const groups = job.stage == DeviceStage::kGroup ? TheDevices().groups(nullptr) : nullptr;
  for (const Group& node : topologies[0].nodes()) {
    if (groups != nullptr) cards[node.world_rank(0)].group_id = ValueOrThrow(groups->MakeId());
  }
  Meeting meeting(size);
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::byte*> segments;
    for (const int member : topologies[rank].node().world_ranks()) segments.push_back((*memory)[member].data());
    auto parts = std::make_unique<FabricParts>(topologies[rank], env, RailChoice(), std::move(segments), memory,
                                               std::make_unique<InprocTransport>(hub, rank));
    ranks.push_back(std::make_unique<DeviceRank>(job, std::move(parts), meeting,
                                                 reinterpret_cast<std::byte*>(data[rank].data()), data[rank].size()));
  }
  std::vector<std::string> errors(size);
  {
    nb::gil_scoped_release release;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const Status status = ranks[rank]->Run(cards);
        if (!status.ok()) errors[rank] = status.message();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return errors;
}

DeviceStage StageNamed(const std::string& name) {
  for (const DeviceStage stage : {DeviceStage::kHost, DeviceStage::kPeer, DeviceStage::kGroup}) {
    if (name == NameOf(stage)) return stage;
  }
  throw nb::value_error(("There is no stage " + name).c_str());
}

std::vector<std::string> Run(const std::vector<std::string>& hosts, const std::string& stage, const std::string& dtype,
                             const std::string& wire, int op, double prescale, double postscale, int divisor,
                             const std::vector<std::vector<int64_t>>& buckets, const std::vector<Bytes>& data,
                             const std::vector<std::vector<int>>& orders,
                             const std::vector<std::vector<int>>& in_host_memory, const std::vector<int>& devices,
                             int64_t chunk_bytes, int steps, int pause_us, double seconds) {
  Job job;
  job.stage = StageNamed(stage);
  job.dtype = ValueOrThrow(DTypeFromName(dtype));
  job.wire = ValueOrThrow(DTypeFromName(wire));
  job.op = static_cast<ReduceOp>(op);
  job.before = {prescale, 1};
  job.after = {postscale, divisor};
  job.buckets = buckets;
  job.orders = orders;
  job.in_host_memory = in_host_memory;
  job.devices = devices;
  job.chunking = {chunk_bytes, 0};
  job.steps = steps;
  job.pause_us = pause_us;
  job.seconds = seconds;
  job.rail = Algorithms().front();
  return RunAll(job, hosts, data);
}

}  // namespace

void BindDeviceTasks(nb::module_& m) {
  m.def("device_decide", &DecideFor, nb::arg("hosts"), nb::arg("cards"));
  m.def("device_card_encode", &Encoded, nb::arg("card"));
  m.def("device_card_decode", &Decoded, nb::arg("text"));
  m.def("device_run", &Run, nb::arg("hosts"), nb::arg("stage"), nb::arg("dtype"), nb::arg("wire"), nb::arg("op"),
        nb::arg("prescale"), nb::arg("postscale"), nb::arg("divisor"), nb::arg("buckets"), nb::arg("data"),
        nb::arg("orders"), nb::arg("in_host_memory"), nb::arg("devices"), nb::arg("chunk_bytes"), nb::arg("steps"),
        nb::arg("pause_us"), nb::arg("seconds"));
}

}  // namespace smddp
