// A device "GPU" of TensorFlow on the fake GPU: memory that the host cannot touch, a compute stream that is a thread,
// and what TensorFlow's own device does with memory and copies.
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_stream.h"
#include "tensorflow/core/common_runtime/local_device.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/public/session_options.h"

extern "C" {
const char* fake_gpu_error();
void* fake_gpu_allocate(int device, size_t bytes);
void* fake_gpu_make_stream(int device);
void* fake_gpu_make_event(int device);
int fake_gpu_record(int device, void* event, void* stream);
int fake_gpu_wait(int device, void* stream, void* event);
void fake_gpu_enqueue(int device, void* stream, void (*work)(void*), void* argument);
void fake_gpu_poison(int device, void* memory, size_t bytes, void* stream);
int fake_gpu_copy(int device, void* to, const void* from, size_t bytes, void* stream);
int fake_gpu_synchronize(int device, void* stream, double seconds);
}

namespace {

using tensorflow::Tensor;

constexpr double kSeconds = 60;

void* Handle() {
  static void* const handle = fake_gpu_make_stream(0);
  return handle;
}

FakeStream* TheStream() {
  static auto* const stream = new FakeStream(Handle());
  return stream;
}

absl::Status Started(int result) { return result == 0 ? absl::OkStatus() : absl::InternalError(fake_gpu_error()); }

absl::Status Copy(const Tensor& from, Tensor* to, void* stream) {
  if (from.TotalBytes() == 0) return absl::OkStatus();
  return Started(fake_gpu_copy(0, to->data(), from.data(), from.TotalBytes(), stream));
}

// A stream for copies, which wait for what the compute stream holds when they are put there, as TensorFlow's do. The
// caller goes on at once; it is told on another thread when the copy has run.
class CopyStream {
 public:
  void Copy(const Tensor& from, Tensor* to, tensorflow::StatusCallback done) {
    const absl::Status started = Start(from, to);
    if (!started.ok()) return done(started);
    auto* const copy = new Copied{from, *to, std::move(done)};
    fake_gpu_enqueue(
        0, stream_,
        [](void* argument) {
          std::thread([argument] {
            const std::unique_ptr<Copied> ended(static_cast<Copied*>(argument));
            ended->done(absl::OkStatus());
          }).detach();
        },
        copy);
  }

 private:
  struct Copied {
    const Tensor from, to;  // their memory lives as long
    const tensorflow::StatusCallback done;
  };

  absl::Status Start(const Tensor& from, Tensor* to) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool ordered = fake_gpu_record(0, event_, Handle()) == 0 && fake_gpu_wait(0, stream_, event_) == 0;
    return ordered ? ::Copy(from, to, stream_) : absl::InternalError(fake_gpu_error());
  }

  std::mutex mutex_;
  void* const stream_ = fake_gpu_make_stream(0);
  void* const event_ = fake_gpu_make_event(0);  // recorded again and again, which waits do not notice
};

// As TensorFlow's allocator: memory is for the compute stream, so what was given back is handed out again at once, the
// last first, while work on the stream may still use it. In between it is poisoned, in the order of the stream.
class Memory final : public tensorflow::Allocator {
 public:
  std::string Name() override { return "fake_gpu"; }
  void* AllocateRaw(size_t, size_t bytes) override {
    const size_t rounded = (bytes + kUnit - 1) / kUnit * kUnit;
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& free = free_[rounded];
    void* memory = nullptr;
    if (free.empty()) {
      memory = fake_gpu_allocate(0, rounded);
    } else {
      memory = free.back();
      free.pop_back();
    }
    if (memory != nullptr) bytes_[memory] = rounded;
    return memory;
  }
  void DeallocateRaw(void* memory) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t bytes = bytes_.at(memory);
    fake_gpu_poison(0, memory, bytes, Handle());
    free_[bytes].push_back(memory);
  }

 private:
  static constexpr size_t kUnit = 256;
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;  // by bytes
  std::map<void*, size_t> bytes_;
};

class Context final : public tensorflow::DeviceContext {
 public:
  stream_executor::Stream* stream() const override { return TheStream(); }
  void CopyCPUTensorToDevice(const Tensor* cpu, tensorflow::Device*, Tensor* gpu, tensorflow::StatusCallback done,
                             bool) const override {
    to_device_->Copy(*cpu, gpu, std::move(done));
  }
  void CopyTensorInSameDevice(const Tensor* from, tensorflow::Device*, Tensor* to,
                              tensorflow::StatusCallback done) const override {
    done(Copy(*from, to, Handle()));  // it has not run: what follows on the stream comes after it
  }
  void CopyDeviceTensorToCPU(const Tensor* gpu, absl::string_view, tensorflow::Device*, Tensor* cpu,
                             tensorflow::StatusCallback done) override {
    to_host_->Copy(*gpu, cpu, std::move(done));
  }
  // As a GPU of another maker would say of itself.
  bool IsPluggableDevice() override { return std::getenv("FAKE_TF_PLUGGABLE") != nullptr; }

 private:
  CopyStream* const to_device_ = new CopyStream;
  CopyStream* const to_host_ = new CopyStream;
};

class FakeDevice final : public tensorflow::LocalDevice {
 public:
  FakeDevice(const tensorflow::SessionOptions& options, const tensorflow::DeviceAttributes& attributes)
      : LocalDevice(options, attributes), context_(new Context), memory_(new Memory) {
    info_.stream = TheStream();
    info_.default_context = context_;
    info_.gpu_id = 0;
    set_tensorflow_accelerator_device_info(&info_);
  }
  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes attributes) override {
    return attributes.on_host() ? tensorflow::cpu_allocator() : memory_;
  }
  absl::Status Sync() override {
    const bool in_time = fake_gpu_synchronize(0, Handle(), kSeconds) == 1;
    return in_time ? absl::OkStatus() : absl::InternalError("too slow");
  }
  absl::Status TryGetDeviceContext(tensorflow::DeviceContext** context) override {
    context_->Ref();
    *context = context_;
    return absl::OkStatus();
  }
  absl::Status MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                   const tensorflow::AllocatorAttributes attributes, Tensor* tensor) override {
    Tensor parsed(proto.dtype());
    if (!parsed.FromProto(tensorflow::cpu_allocator(), proto)) return absl::InvalidArgumentError("bad proto");
    *tensor = attributes.on_host() ? parsed : Tensor(memory_, parsed.dtype(), parsed.shape());
    if (attributes.on_host()) return absl::OkStatus();
    const absl::Status started = Copy(parsed, tensor, Handle());
    return started.ok() ? Sync() : started;
  }

 private:
  Context* const context_;  // these live as long as the process
  Memory* const memory_;
  AcceleratorDeviceInfo info_;
};

class Factory final : public tensorflow::DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    devices->push_back("/physical_device:GPU:0");
    return absl::OkStatus();
  }
  absl::Status CreateDevices(const tensorflow::SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<tensorflow::Device>>* devices) override {
    const tensorflow::DeviceAttributes attributes =
        tensorflow::Device::BuildDeviceAttributes(prefix + "/device:GPU:0", tensorflow::DeviceType("GPU"),
                                                  tensorflow::Bytes(1 << 30), tensorflow::DeviceLocality(), "fake");
    devices->push_back(std::make_unique<FakeDevice>(options, attributes));
    return absl::OkStatus();
  }
};

REGISTER_LOCAL_DEVICE_FACTORY("GPU", Factory, 210);

}  // namespace
