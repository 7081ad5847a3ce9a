#include "collectives/gate.h"
#include "native/testing.h"

namespace smddp {
namespace {

class Gate : public ChunkGate {
 public:
  Result<bool> Ready(Range range) override {
    if (fails) return Status(Reason::kInternal, "no GPU");
    CHECK(range.begin == 3);
    return ready;
  }
  Status Done(Range range) override {
    CHECK(range.end == 9);
    ++done;
    return Status::Ok();
  }
  bool ready = false, fails = false;
  int done = 0;
};

TEST_CASE("gate: work begins when the data are there, and its end is told once") {
  Gate gate;
  int made = 0;
  const TaskPtr task = Gated(gate, {3, 9}, [&] {
    ++made;
    return InSteps("work", 2, 1, [](Range) {});
  });
  CHECK(Value(task->Step()) == Progress::kWaiting);
  CHECK(task->Describe() == "waiting for the GPU");
  CHECK(made == 0);
  gate.ready = true;
  CHECK(Value(task->Step()) == Progress::kMoved);
  CHECK(task->Describe() == "work");
  CHECK(gate.done == 0);
  CHECK(Value(task->Step()) == Progress::kDone);
  CHECK(made == 1);
  CHECK(gate.done == 1);
}

TEST_CASE("gate: where there is nothing to do the end is told as well") {
  Gate gate;
  gate.ready = true;
  CHECK(Value(Gated(gate, {3, 9}, []() -> TaskPtr { return nullptr; })->Step()) == Progress::kDone);
  CHECK(gate.done == 1);
}

TEST_CASE("gate: its error ends the task") {
  Gate gate;
  gate.fails = true;
  CHECK(Gated(gate, {3, 9}, []() -> TaskPtr { return nullptr; })->Step().status().message() == "no GPU");
  CHECK(gate.done == 0);
}

}  // namespace
}  // namespace smddp
