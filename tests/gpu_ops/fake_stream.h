// TensorFlow's idea of a stream, for one of the fake GPU's. Only the handle is asked for.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <variant>

#include "xla/stream_executor/device_address.h"
#include "xla/stream_executor/device_description.h"
#include "xla/stream_executor/stream.h"

class FakeStream final : public stream_executor::Stream {
 public:
  explicit FakeStream(void* handle) : handle_(handle) {}
  PlatformSpecificHandle platform_specific_handle() const override {
    PlatformSpecificHandle of_platform;
    of_platform.stream = handle_;
    return of_platform;
  }

  bool ok() const override { return true; }
  const std::string& GetName() const override { return name_; }
  void SetName(std::string name) override { name_ = std::move(name); }

  using Status = absl::Status;
  using Address = stream_executor::DeviceAddressBase;
  absl::StatusOr<Stream*> GetOrCreateSubStream() override { std::abort(); }
  void ReturnSubStream(Stream*) override { std::abort(); }
  Status WaitFor(Stream*) override { std::abort(); }
  Status WaitFor(stream_executor::Event*) override { std::abort(); }
  Status RecordEvent(stream_executor::Event*) override { std::abort(); }
  Status Memcpy(void*, const Address&, uint64_t) override { std::abort(); }
  Status Memcpy(Address*, const void*, uint64_t) override { std::abort(); }
  Status BlockHostUntilDone() override { std::abort(); }
  Status DoHostCallbackWithStatus(absl::AnyInvocable<Status() &&>) override { std::abort(); }
  stream_executor::StreamExecutor* parent() const override { std::abort(); }
  stream_executor::CudaComputeCapability GetCudaComputeCapability() const override { std::abort(); }
  stream_executor::RocmComputeCapability GetRocmComputeCapability() const override { std::abort(); }
  stream_executor::OneAPIComputeCapability GetOneAPIComputeCapability() const override { std::abort(); }
  std::variant<stream_executor::StreamPriority, int> priority() const override { std::abort(); }

 private:
  void* const handle_;
  std::string name_;
};
