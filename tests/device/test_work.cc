#include "device/work.h"
#include "native/device.h"

namespace smddp {
namespace {

TEST_CASE("device work: the engine's stream waits for the framework's, and that one for the result") {
  NotedDevice device;
  EventPool events(device);
  const auto work = Value(DeviceWork::Begin(events, StreamOf(7)));
  CHECK(device.calls == std::vector<std::string>{"record 7"});
  CHECK(work->stream() == StreamOf(7));
  CHECK(&work->device() == &device);
  CHECK(work->MakeWait(StreamOf(3)).ok());
  CHECK(work->HandBack(*Value(events.Mark(StreamOf(5)))).ok());
  CHECK(device.calls == std::vector<std::string>{"record 7", "wait 3", "record 5", "wait 7"});
}

TEST_CASE("device work: no event is made for a tensor whose predecessor is done") {
  NotedDevice device;
  EventPool events(device);
  for (int i = 0; i < 3; ++i) Value(DeviceWork::Begin(events, StreamOf(7)));
  CHECK(device.events.size() == 1);
}

}  // namespace
}  // namespace smddp
