// A library for SMDDP_GPU_LIBRARY with GPUs that cannot be opened. It prints the calls. SOME_GPU_COUNT: how many there
// are; unset: asking for them is an error.
#include <cstdio>
#include <cstdlib>

#include "device/plugin.h"

namespace {

using smddp::Reason;
using smddp::Result;
using smddp::Status;

class SomePlugin : public smddp::DevicePlugin {
 public:
  std::string platform() const override { return "some platform"; }
  Result<int> Count() override {
    std::puts("count");
    const char* const count = std::getenv("SOME_GPU_COUNT");
    if (count != nullptr) return std::atoi(count);
    return Status(Reason::kBadState, "no driver");
  }
  Result<smddp::Device*> Open(int) override { return Status(Reason::kInternal, "cannot be opened"); }
  Result<int> DeviceOf(const void*) override {
    std::puts("device_of");
    return -1;
  }
  Result<smddp::DeviceGroupLibrary*> Groups() override { return Status(Reason::kBadState, "no NCCL"); }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) smddp::DevicePlugin* smddp_make_device_plugin(int version,
                                                                                                const char* nccl) {
  std::printf("made %s\n", nccl);
  return version == smddp::kDevicePluginVersion ? new SomePlugin : nullptr;
}
