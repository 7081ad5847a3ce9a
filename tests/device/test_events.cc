#include <algorithm>
#include <chrono>
#include <thread>

#include "device/events.h"
#include "native/device.h"

namespace smddp {
namespace {

using Calls = std::vector<std::string>;

// Longer than an answer of the GPU is kept.
void LetTimePass() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TEST_CASE("event pool: an event is used again when its last holder is gone") {
  NotedDevice device;
  EventPool events(device);
  PooledEventPtr first = Value(events.Mark(StreamOf(1)));
  const PooledEventPtr second = Value(events.Mark(StreamOf(1)));
  CHECK(device.events.size() == 2);
  first.reset();
  CHECK(events.Mark(StreamOf(4)).ok());
  CHECK(device.events.size() == 2);
}

TEST_CASE("event pool: nothing waits for what has passed") {
  NotedDevice device;
  EventPool events(device);
  const PooledEventPtr first = Value(events.Mark(StreamOf(1))), second = Value(events.Mark(StreamOf(1)));
  CHECK_FALSE(Value(first->Passed()));
  device.done = true;
  LetTimePass();
  CHECK(Value(first->Passed()));
  device.calls.clear();
  CHECK(first->MakeWait(StreamOf(2)).ok());
  CHECK(device.calls.empty());
  CHECK(second->MakeWait(StreamOf(2)).ok());
  CHECK(device.calls == Calls{"wait 2"});
}

TEST_CASE("event pool: of a stream's marks only the first is looked at") {
  NotedDevice device;
  EventPool events(device);
  std::vector<PooledEventPtr> marks;
  for (int i = 0; i < 5; ++i) marks.push_back(Value(events.Mark(StreamOf(1))));
  const PooledEventPtr elsewhere = Value(events.Mark(StreamOf(2)));
  const auto look_at_all = [&](bool expected) {
    device.looks = 0;
    bool as_expected = true;  // checked at the end: a check takes as long as a look is kept
    for (const auto& mark : marks) {
      const Result<bool> passed = mark->Passed();
      as_expected &= passed.ok() && *passed == expected;
    }
    CHECK(as_expected);
    return device.looks;
  };
  // A look may come later than 10 us after the one before it where the processor is busy: then there are more.
  int fewest = 5;
  for (int i = 0; i < 20; ++i) {
    LetTimePass();
    fewest = std::min(fewest, look_at_all(false));
  }
  CHECK(fewest == 1);
  device.looks = 0;
  CHECK_FALSE(Value(elsewhere->Passed()));
  CHECK(device.looks == 1);
  LetTimePass();
  device.done = true;
  CHECK(look_at_all(true) == 5);  // one after the other, at once
  CHECK(look_at_all(true) == 0);
}

TEST_CASE("event pool: a mark that has passed answers for those before it") {
  NotedDevice device;
  EventPool events(device);
  const PooledEventPtr first = Value(events.Mark(StreamOf(1))), second = Value(events.Mark(StreamOf(1)));
  device.done = true;
  CHECK(Value(second->Passed()));
  CHECK(Value(first->Passed()));
  CHECK(device.looks == 1);
}

TEST_CASE("event pool: an earlier mark is looked at although a later one was not passed") {
  NotedDevice device;
  EventPool events(device);
  const PooledEventPtr first = Value(events.Mark(StreamOf(1))), second = Value(events.Mark(StreamOf(1)));
  CHECK_FALSE(Value(second->Passed()));
  device.done = true;
  CHECK(Value(first->Passed()));
}

}  // namespace
}  // namespace smddp
