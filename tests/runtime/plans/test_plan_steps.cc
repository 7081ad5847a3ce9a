// The bookkeeping of one rank. (test_plan_steps.py does it with whole jobs.)
#include "native/testing.h"
#include "runtime/plans/plan_steps.h"

namespace smddp {
namespace {

using Arrival = PlanSteps::Arrival;
using Tensors = std::vector<int>;

// All tensors of a step arrive and are reduced.
void Step(PlanSteps* steps, int tensors, uint64_t run) {
  for (int index = 0; index < tensors; ++index) CHECK(steps->Take(index, run) == Arrival::kTaken);
  for (int index = 0; index < tensors; ++index) steps->Finish(index);
}

TEST_CASE("plan steps: a step is one reduction of every tensor") {
  PlanSteps steps(3);
  CHECK(steps.complete());
  CHECK(steps.Take(1, 7) == Arrival::kTaken);
  CHECK(steps.begun() == 1);
  CHECK(steps.fewest() == 0);
  CHECK_FALSE(steps.complete());
  CHECK(steps.Of(1) == 1);
  CHECK(steps.Of(0) == 0);
  for (const int index : {0, 2}) CHECK(steps.Take(index, 7) == Arrival::kTaken);
  CHECK(steps.complete());
  CHECK_FALSE(steps.finished());
  for (const int index : {0, 1, 2}) steps.Finish(index);
  CHECK(steps.finished());
  CHECK(steps.run() == 7);
  Step(&steps, 3, 8);
  CHECK(steps.begun() == 2);
}

TEST_CASE("plan steps: two runs at a time overlap") {
  PlanSteps steps(3);
  CHECK(steps.Take(0, 7) == Arrival::kTaken);
  CHECK(steps.Take(0, 7) == Arrival::kOverlaps);
  CHECK(steps.Take(1, 8) == Arrival::kOverlaps);
  CHECK(steps.Take(1, 7) == Arrival::kTaken);
  steps.Finish(0);
  CHECK(steps.Take(0, 7) == Arrival::kOverlaps);  // the second of its kind in the run
}

TEST_CASE("plan steps: without a run each tensor is counted by itself") {
  PlanSteps steps(2);
  CHECK(steps.Take(0, 0) == Arrival::kTaken);
  CHECK(steps.Take(0, 0) == Arrival::kOverlaps);
  steps.Finish(0);
  CHECK(steps.Take(0, 0) == Arrival::kTaken);
  CHECK(steps.begun() == 2);
  CHECK(steps.fewest() == 0);
}

TEST_CASE("plan steps: a run that begins while tensors of the last are missing breaks that one off") {
  PlanSteps steps(2);
  CHECK_FALSE(steps.BreaksOff(7));
  steps.Take(0, 7);
  CHECK_FALSE(steps.BreaksOff(8));  // one is under way
  steps.Finish(0);
  CHECK(steps.BreaksOff(8));
  CHECK_FALSE(steps.BreaksOff(7));
  CHECK_FALSE(steps.BreaksOff(0));
  CHECK(steps.Fill(1) == Tensors{1});
  CHECK_FALSE(steps.BreaksOff(8));
}

TEST_CASE("plan steps: of a step that is given up the missing tensors are remembered, and come too late") {
  PlanSteps steps(3);
  steps.Take(1, 7);
  steps.GiveUp(1, Status(Reason::kStepGivenUp, "given up"));
  CHECK(steps.complete());
  CHECK_FALSE(steps.settled());
  CHECK(steps.VoidStatus(1).message() == "given up");
  CHECK(steps.VoidStatus(2).ok());
  CHECK(steps.TakeMissing(1) == Tensors{0, 2});
  CHECK(steps.TakeMissing(1).empty());
  CHECK(steps.settled());
  CHECK(steps.Take(0, 7) == Arrival::kTooLate);
  steps.Finish(1);
  Step(&steps, 3, 8);
  CHECK(steps.VoidStatus(1).ok());  // nothing of it is under way any more
}

TEST_CASE("plan steps: a step may be given up before it begins here") {
  PlanSteps steps(2);
  Step(&steps, 2, 1);
  steps.Void(2, Status(Reason::kStepGivenUp, "elsewhere"));
  CHECK(steps.Take(0, 2) == Arrival::kTaken);
  CHECK(steps.Of(0) == 2);
  CHECK_FALSE(steps.VoidStatus(2).ok());
}

TEST_CASE("plan steps: what is expected is remembered") {
  PlanSteps steps(1);
  CHECK_FALSE(steps.Expect(true));
  CHECK(steps.Expect(false));
  CHECK_FALSE(steps.Expect(false));
}

}  // namespace
}  // namespace smddp
