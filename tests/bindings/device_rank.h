// One rank of a job that tests run on GPUs: what a framework and an engine would do, in one thread.
#pragma once

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

#include "collectives/device/device_context.h"
#include "core/clock.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/gpu/devices.h"

namespace smddp {

struct DeviceJob {
  DeviceMethod method = DeviceMethod::kHost;
  DType dtype = DType::kFloat32, wire = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Scaling before, after;
  std::vector<std::vector<int64_t>> buckets;     // elements of each piece
  std::vector<std::vector<int>> orders;          // of the buckets, by rank
  std::vector<std::vector<int>> in_host_memory;  // pieces, counted through the buckets, by rank
  std::vector<int> devices;                      // by rank
  int64_t chunk_bytes = 0;
  int steps = 1;
  int pause_us = 0;
  double seconds = 20;
  const AllreduceAlgorithm* rail = nullptr;
};

// Where all ranks wait for one another, and hear of an error.
class DeviceMeeting {
 public:
  explicit DeviceMeeting(int size) : size_(size) {}
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

class DeviceRank {
 public:
  DeviceRank(const DeviceJob& job, std::unique_ptr<FabricParts> parts, DeviceMeeting& meeting, std::byte* data,
             size_t bytes)
      : job_(job),
        parts_(std::move(parts)),
        rank_(parts_->fabric().topology.rank()),
        meeting_(meeting),
        data_(data),
        bytes_(bytes),
        random_(rank_ + 1) {}

  // Reduces `data` in place.
  // `ids`: of NCCL's groups, by the rank that is their first member.
  Status Run(const std::vector<std::string>& ids) {
    Status status = Prepare(ids);
    if (!status.ok()) meeting_.failed = true;
    meeting_.Wait();
    for (int step = 0; status.ok() && step < job_.steps; ++step) status = Step(step);
    if (!status.ok()) meeting_.failed = true;
    parts_->transport().Abort();
    tasks_.clear();
    if (context_ != nullptr) context_->End(/*failed=*/!status.ok());
    meeting_.Wait();
    context_ = nullptr;
    meeting_.Wait();
    Clean();
    return status;
  }

 private:
  struct Running {
    TaskPtr task;
    std::unique_ptr<FusedView> view;
  };

  Status Prepare(const std::vector<std::string>& ids) {
    SMDDP_ASSIGN_OR_RETURN(DevicePlugin* const plugin, TheDevices().plugin());
    SMDDP_ASSIGN_OR_RETURN(device_, plugin->Open(job_.devices[rank_]));
    context_ = std::make_unique<DeviceContext>(parts_->fabric(), *device_);
    SMDDP_RETURN_IF_ERROR(context_->Make());
    const Topology& topology = parts_->fabric().topology;
    const Group& members = job_.method == DeviceMethod::kAll ? topology.all() : topology.node();
    if (job_.method != DeviceMethod::kHost && members.size() > 1) {
      SMDDP_ASSIGN_OR_RETURN(DeviceGroupLibrary* const groups, TheDevices().groups());
      SMDDP_RETURN_IF_ERROR(context_->Join(members, ids[members.world_rank(0)], *groups));
      SMDDP_RETURN_IF_ERROR(Until([this] { return context_->calls()->Joined(); }));
    }
    context_->Use(job_.method);
    SMDDP_ASSIGN_OR_RETURN(stream_, device_->MakeStream());
    SMDDP_ASSIGN_OR_RETURN(event_, device_->MakeEvent());
    events_ = std::make_unique<EventPool>(*device_);
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
    events_ = nullptr;
    if (stream_ != nullptr) device_->DestroyStream(stream_);
  }

  // Polls until `done` says true, an error, or another rank has one.
  template <class Done>
  Status Until(Done done) {
    const Deadline deadline = Deadline::After(job_.seconds);
    while (true) {
      SMDDP_ASSIGN_OR_RETURN(bool moved, parts_->transport().Progress());
      const Result<bool> is_done = done();
      SMDDP_RETURN_IF_ERROR(is_done.status());
      if (*is_done) return Status::Ok();
      if (meeting_.failed) return Status(Reason::kShutDown, "Another rank has failed.");
      if (deadline.passed()) return Status(Reason::kTimedOut, "Stands still: " + Describe());
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
      return Status(Reason::kInternal, "Step " + std::to_string(step) + " gave other bits than step 0.");
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
      std::shared_ptr<const PooledEvent> work;
      if (!InHostMemory(number)) {
        Result<std::shared_ptr<const PooledEvent>> made = events_->Mark(stream_);
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
    call.through_host = job_.method == DeviceMethod::kHost;
    tasks_.push_back({DeviceAllreduce(*context_, *job_.rail, call), std::move(view)});
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

  const DeviceJob& job_;
  const std::unique_ptr<FabricParts> parts_;
  const int rank_;
  DeviceMeeting& meeting_;
  std::byte* const data_;
  const size_t bytes_;
  std::mt19937 random_;
  Device* device_ = nullptr;
  std::unique_ptr<DeviceContext> context_;
  DeviceStream stream_ = nullptr;  // the framework's
  DeviceEvent event_ = nullptr;
  std::unique_ptr<EventPool> events_;  // of the framework's gradients
  std::byte *tensors_ = nullptr, *pinned_ = nullptr;
  std::vector<std::byte> host_, first_;
  std::vector<Running> tasks_;
};

}  // namespace smddp
