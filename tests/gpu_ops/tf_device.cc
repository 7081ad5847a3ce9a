// A device "GPU" of TensorFlow on the fake GPU: memory that the host cannot touch, a stream that is a thread.
#include <cstdlib>
#include <memory>
#include <string>
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
void fake_gpu_free(int device, void* memory);
void* fake_gpu_make_stream(int device);
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

absl::Status Copy(const Tensor& from, Tensor* to) {
  if (from.TotalBytes() == 0) return absl::OkStatus();
  if (fake_gpu_copy(0, to->data(), from.data(), from.TotalBytes(), Handle()) != 0) {
    return absl::InternalError(fake_gpu_error());
  }
  return fake_gpu_synchronize(0, Handle(), kSeconds) == 1 ? absl::OkStatus() : absl::InternalError("too slow");
}

class Memory final : public tensorflow::Allocator {
 public:
  std::string Name() override { return "fake_gpu"; }
  void* AllocateRaw(size_t, size_t bytes) override { return fake_gpu_allocate(0, bytes); }
  void DeallocateRaw(void* memory) override { fake_gpu_free(0, memory); }
};

class Context final : public tensorflow::DeviceContext {
 public:
  stream_executor::Stream* stream() const override { return TheStream(); }
  void CopyCPUTensorToDevice(const Tensor* cpu, tensorflow::Device*, Tensor* gpu, tensorflow::StatusCallback done,
                             bool) const override {
    done(Copy(*cpu, gpu));
  }
  void CopyTensorInSameDevice(const Tensor* from, tensorflow::Device*, Tensor* to,
                              tensorflow::StatusCallback done) const override {
    done(Copy(*from, to));
  }
  void CopyDeviceTensorToCPU(const Tensor* gpu, absl::string_view, tensorflow::Device*, Tensor* cpu,
                             tensorflow::StatusCallback done) override {
    done(Copy(*gpu, cpu));
  }
  // As a GPU of another maker would say of itself.
  bool IsPluggableDevice() override { return std::getenv("FAKE_TF_PLUGGABLE") != nullptr; }
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
    fake_gpu_synchronize(0, Handle(), kSeconds);
    return absl::OkStatus();
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
    return attributes.on_host() ? absl::OkStatus() : Copy(parsed, tensor);
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
