#include "runtime/gpu/host_round_trips.h"

#include <utility>

#include "core/clock.h"

namespace smddp {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// Ownership: shared with the requests under way.
struct HostRoundTrips::Gpu {
  Gpu(Device& device, DeviceStream stream, const BufferPool::MayAllocate& may_allocate)
      : device(device), stream(stream), events(device), pinned(device, BufferPool::Kind::kPinned, may_allocate) {}
  ~Gpu() { device.DestroyStream(stream); }

  Device& device;
  const DeviceStream stream;
  EventPool events;
  BufferPool pinned;
};

Result<std::shared_ptr<HostRoundTrips::Gpu>> HostRoundTrips::Of(Device& device) {
  if (gpu_ == nullptr) {
    SMDDP_ASSIGN_OR_RETURN(const DeviceStream stream, device.MakeStream());
    gpu_ = std::make_shared<Gpu>(device, stream, may_allocate_);
  }
  if (&gpu_->device == &device) return gpu_;
  return Status(Reason::kBadArgument, "A tensor is on GPU ", device.info().index, ", earlier tensors are on GPU ",
                gpu_->device.info().index,
                ". A rank can use only one GPU: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU').");
}

void HostRoundTrips::KeepMemory() {
  if (gpu_ != nullptr) gpu_->pinned.Leak();
}

// One request under way: the pinned memory of its tensors, in both directions.
class HostRoundTrips::Copies {
 public:
  Copies(std::shared_ptr<Gpu> gpu, Tensors what) : gpu_(std::move(gpu)), what_(std::move(what)) {}

  // Has everything come to the host? Poll: the copies begin when there is memory for them.
  Result<bool> Down() {
    if (down_ != nullptr) return down_->Passed();
    size_t bytes = 0;
    for (size_t i = 0; i < what_.tensors.size(); ++i) bytes += Room(i);
    SMDDP_ASSIGN_OR_RETURN(const bool taken, gpu_->pinned.Take(&memory_, bytes, std::nullopt));
    if (!taken) return false;
    std::byte* place = memory_.data();
    for (size_t i = 0; i < what_.tensors.size(); place += Room(i++)) {
      TensorRef tensor = what_.tensors[i];
      SMDDP_RETURN_IF_ERROR(tensor.device->MakeWait(gpu_->stream));
      if (tensor.bytes() > 0) SMDDP_RETURN_IF_ERROR(Copy(place, tensor.input, tensor.bytes()));
      tensor.device = nullptr;
      tensor.input = place;
      tensor.output = place + (in_place(i) ? 0 : Aligned(tensor.bytes()));
      host_.push_back(std::move(tensor));
    }
    SMDDP_ASSIGN_OR_RETURN(down_, gpu_->events.Mark(gpu_->stream));
    return false;
  }
  const std::vector<TensorRef>& host() const { return host_; }
  // Call it once everything has come: copies the results and ends the request.
  Status Up(const Status& reduced) {
    if (!reduced.ok()) {
      memory_.GiveBack(down_);
      return reduced;
    }
    for (size_t i = 0; i < host_.size(); ++i) {
      if (what_.result_bytes[i] == 0) continue;
      SMDDP_RETURN_IF_ERROR(Copy(what_.tensors[i].output, host_[i].output, what_.result_bytes[i]));
    }
    SMDDP_ASSIGN_OR_RETURN(const PooledEventPtr up, gpu_->events.Mark(gpu_->stream));
    memory_.GiveBack(up);
    for (const TensorRef& tensor : what_.tensors) SMDDP_RETURN_IF_ERROR(up->MakeWait(tensor.device->stream()));
    return Status::Ok();
  }

 private:
  // A result whose shape differs from its tensor's has its own memory.
  bool in_place(size_t i) const { return what_.result_bytes[i] == what_.tensors[i].bytes(); }
  size_t Room(size_t i) const {
    return Aligned(what_.tensors[i].bytes()) + (in_place(i) ? 0 : Aligned(what_.result_bytes[i]));
  }
  Status Copy(void* to, const void* from, size_t bytes) { return gpu_->device.Copy(to, from, bytes, gpu_->stream); }

  const std::shared_ptr<Gpu> gpu_;
  const Tensors what_;
  BufferLease memory_;
  PooledEventPtr down_;
  std::vector<TensorRef> host_;
};

void HostRoundTrips::Begin(const std::string& name, Tensors what, OnHost on_host, DoneCallback caller_done) {
  const int64_t now_ns = NowNs();
  const auto done = [this, begun = begun_ns_.insert(now_ns),
                     caller_done = std::move(caller_done)](const Status& status) {
    begun_ns_.erase(begun);
    caller_done(status);
  };
  for (const TensorRef& tensor : what.tensors) {
    if (tensor.device != nullptr) continue;
    return done(
        Status(Reason::kBadArgument, "'", name,
               "' has some tensors in host memory and others on a GPU. Put all of them on one device (tf.device)."));
  }
  Result<std::shared_ptr<Gpu>> gpu = Of(what.tensors.front().device->device());
  if (!gpu.ok()) return done(gpu.status());
  const auto copies = std::make_shared<Copies>(std::move(*gpu), std::move(what));
  const Result<bool> down = copies->Down();
  if (!down.ok()) return done(down.status());

  RunningTask running;
  running.task = Until("copying from the GPU", [copies] { return copies->Down(); });
  running.submitted_ns = now_ns;
  running.name = "'" + name + "', from the GPU";
  running.done = [copies, on_host = std::move(on_host), done](const Status& here) {
    if (!here.ok()) return done(here);
    on_host(copies->host(), [copies, done](const Status& reduced) { done(copies->Up(reduced)); });
  };
  bus_.Run(std::move(running));
}

}  // namespace smddp
