// Without a plug-in, and with libraries that are none; tests/gpu has one that works.
#include <cstdlib>

#include "native/testing.h"
#include "runtime/gpu/devices.h"

namespace smddp {
namespace {

// With SMDDP_GPU_LIBRARY during its life.
struct Library {
  explicit Library(const char* path) { setenv("SMDDP_GPU_LIBRARY", path, 1); }
  ~Library() { unsetenv("SMDDP_GPU_LIBRARY"); }
};

TEST_CASE("devices: a library that is not there is why there are none, everywhere") {
  const Library library("/none/libgpu.so");
  Devices devices;
  CHECK(devices.Count() == 0);
  const int here = 5;
  const std::string words = "The GPU part of smddp_tf cannot be loaded: /none/libgpu.so";
  for (const Status& status : {devices.plugin().status(), devices.At(&here).status(), devices.groups().status()}) {
    CHECK(status.reason() == Reason::kBadState);
    CHECK(Begins(status.message(), words));
  }
  const DeviceSupport found = devices.Find();
  CHECK(found.platform.empty());
  CHECK(found.count == 0);
  CHECK(Begins(found.why_none, words));
  CHECK(found.nccl_version == 0);
  CHECK(Begins(found.why_no_nccl, words));
}

TEST_CASE("devices: a library without the plug-in's function is of another version") {
  const Library library("libm.so.6");
  Devices devices;
  CHECK(Begins(devices.plugin().status().message(), "libm.so.6 belongs to another version of smddp_tf."));
}

TEST_CASE("devices: they are looked for once") {
  Devices devices;
  {
    const Library library("/none/first.so");
    CHECK(devices.Count() == 0);
  }
  const Library library("/none/second.so");
  CHECK(Has(devices.plugin().status().message(), "first.so"));
}

}  // namespace
}  // namespace smddp
