#include "runtime/device_staging.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace smddp {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Done when the GPU has passed the event.
class AwaitTask : public Task {
 public:
  AwaitTask(Device& device, DeviceEvent event) : device_(device), event_(event) {}
  Result<Progress> Step() override {
    SMDDP_ASSIGN_OR_RETURN(const bool done, device_.Done(event_));
    return done ? Progress::kDone : Progress::kWaiting;
  }
  std::string Describe() const override { return "copying from the GPU"; }

 private:
  Device& device_;
  const DeviceEvent event_;
};

}  // namespace

DeviceStaging::~DeviceStaging() {
  for (Block& block : blocks_) {
    block.device->DestroyEvent(block.last_use);
    if (!keep_memory_) block.device->FreePinned(block.memory);
  }
  if (device_ != nullptr) device_->DestroyStream(stream_);
}

Result<DeviceStream> DeviceStaging::StreamOf(Device& device) {
  if (device_ == nullptr) {
    SMDDP_ASSIGN_OR_RETURN(stream_, device.MakeStream());
    device_ = &device;
  }
  if (device_ == &device) return stream_;
  return Status(Code::kInvalidArgument,
                "A tensor lies on GPU " + std::to_string(device.info().index) + ", those before on GPU " +
                    std::to_string(device_->info().index) +
                    ". A rank uses one GPU: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU').");
}

Result<DeviceStaging::Block*> DeviceStaging::Take(Device& device, size_t bytes) {
  for (Block& block : blocks_) {
    if (block.taken || block.bytes < bytes || block.bytes > 2 * bytes + (1 << 16)) continue;
    SMDDP_ASSIGN_OR_RETURN(const bool free, device.Done(block.last_use));
    if (!free) continue;
    block.taken = true;
    return &block;
  }
  Block block;
  block.device = &device;
  block.bytes = bytes;
  SMDDP_ASSIGN_OR_RETURN(block.last_use, device.MakeEvent());
  Result<void*> memory = device.AllocatePinned(bytes);
  if (!memory.ok()) {
    device.DestroyEvent(block.last_use);
    return memory.status();
  }
  block.memory = *memory;
  block.taken = true;
  blocks_.push_back(block);
  return &blocks_.back();
}

// One request on its way: where its tensors lie in the block, in both directions.
class DeviceStaging::Copies {
 public:
  Copies(Tensors what, Device& device, DeviceStream stream)
      : what_(std::move(what)), device_(device), stream_(stream) {}

  size_t bytes() const {
    size_t total = 0;
    for (size_t i = 0; i < what_.tensors.size(); ++i) total += Room(i);
    return std::max<size_t>(total, 1);
  }
  void Use(Block* block) {
    block_ = block;
    size_t offset = 0;
    for (size_t i = 0; i < what_.tensors.size(); ++i) {
      TensorRef tensor = what_.tensors[i];
      tensor.device = nullptr;
      tensor.input = tensor.output = static_cast<std::byte*>(block->memory) + offset;
      if (what_.result_bytes[i] != tensor.bytes()) {  // a result of another shape has a place of its own
        tensor.output = static_cast<std::byte*>(block->memory) + offset + Aligned(tensor.bytes());
      }
      offset += Room(i);
      host_.push_back(std::move(tensor));
    }
  }
  void Free() { block_->taken = false; }
  DeviceEvent event() const { return block_->last_use; }
  const std::vector<TensorRef>& host() const { return host_; }

  Status Down() {
    for (size_t i = 0; i < host_.size(); ++i) {
      const TensorRef& tensor = what_.tensors[i];
      SMDDP_RETURN_IF_ERROR(tensor.device->MakeWait(stream_));
      if (!what_.reads || tensor.bytes() == 0) continue;
      SMDDP_RETURN_IF_ERROR(device_.Copy(const_cast<void*>(host_[i].input), tensor.input, tensor.bytes(), stream_));
    }
    return device_.Record(event(), stream_);
  }
  Status Up() {
    for (size_t i = 0; what_.writes && i < host_.size(); ++i) {
      if (what_.result_bytes[i] == 0) continue;
      SMDDP_RETURN_IF_ERROR(device_.Copy(what_.tensors[i].output, host_[i].output, what_.result_bytes[i], stream_));
    }
    SMDDP_RETURN_IF_ERROR(device_.Record(event(), stream_));
    for (const TensorRef& tensor : what_.tensors) SMDDP_RETURN_IF_ERROR(tensor.device->HandBack(event()));
    return Status::Ok();
  }

 private:
  size_t Room(size_t i) const {
    const size_t bytes = what_.tensors[i].bytes(), result = what_.result_bytes[i];
    return Aligned(bytes) + (result == bytes ? 0 : Aligned(result));
  }

  const Tensors what_;
  Device& device_;
  const DeviceStream stream_;
  Block* block_ = nullptr;
  std::vector<TensorRef> host_;
};

void DeviceStaging::Begin(const std::string& name, Tensors what, OnHost on_host, DoneCallback done) {
  for (const TensorRef& tensor : what.tensors) {
    if (tensor.device != nullptr) continue;
    return done(Status(Code::kInvalidArgument, "'" + name +
                                                   "' holds tensors in host memory beside tensors on a GPU. Put all "
                                                   "of them into one place (tf.device)."));
  }
  Device& device = what.tensors.front().device->device();
  const Result<DeviceStream> stream = StreamOf(device);
  if (!stream.ok()) return done(stream.status());
  const auto copies = std::make_shared<Copies>(std::move(what), device, stream.value());
  const Result<Block*> block = Take(device, copies->bytes());
  if (!block.ok()) return done(block.status());
  copies->Use(block.value());
  const Status down = copies->Down();
  if (!down.ok()) return done(down);

  RunningTask running;
  running.task = std::make_unique<AwaitTask>(device, copies->event());
  running.submitted_ns = NowNs();
  running.name = "'" + name + "', from the GPU";
  running.done = [copies, on_host = std::move(on_host), done = std::move(done)](const Status& here) {
    if (!here.ok()) return done(here);
    on_host(copies->host(), [copies, done](const Status& reduced) {
      const Status up = reduced.ok() ? copies->Up() : reduced;
      copies->Free();
      done(up);
    });
  };
  run_(std::move(running));
}

}  // namespace smddp
