#include "device/work.h"
#include "native/device.h"

namespace smddp {
namespace {

TEST_CASE("device work: the engine's stream waits for the framework's, and that one for the result") {
  NotedDevice device;
  {
    const auto work = Value(DeviceWork::Begin(device, StreamOf(7)));
    CHECK(device.calls == std::vector<std::string>{"record 7"});
    CHECK(device.events.size() == 1);
    CHECK(work->stream() == StreamOf(7));
    CHECK(&work->device() == &device);
    CHECK(work->MakeWait(StreamOf(3)).ok());
    CHECK(work->HandBack(nullptr).ok());
    CHECK(device.calls == std::vector<std::string>{"record 7", "wait 3", "wait 7"});
  }
  CHECK(device.events.empty());
}

}  // namespace
}  // namespace smddp
