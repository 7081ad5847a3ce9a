#include <memory>
#include <set>
#include <string>

#include "core/status.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("every reason has a name of its own") {
  std::set<std::string> names;
  for (int reason = 0; reason <= static_cast<int>(kLastReason); ++reason) {
    names.insert(NameOf(static_cast<Reason>(reason)));
  }
  CHECK(names.size() == static_cast<size_t>(kLastReason) + 1);
  CHECK(std::string(NameOf(Reason::kOk)) == "ok");  // Python compares with these
  CHECK(std::string(NameOf(Reason::kPeerLeft)) == "peer_left");
  CHECK(std::string(NameOf(Reason::kStepGivenUp)) == "step_given_up");
  CHECK(std::string(NameOf(Reason::kInternal)) == "internal");
}

TEST_CASE("a status and its text") {
  CHECK(Status().ok());
  CHECK(Status::Ok().ToString() == "ok");
  const Status failed(Reason::kTimedOut, "Nobody came.");
  CHECK_FALSE(failed.ok());
  CHECK(failed.reason() == Reason::kTimedOut);
  CHECK(failed.message() == "Nobody came.");
  CHECK(failed.ToString() == "timed_out: Nobody came.");
}

Result<int> Half(int of) {
  if (of % 2 != 0) return Status(Reason::kBadArgument, std::to_string(of) + " is odd.");
  return of / 2;
}

Result<int> Quarter(int of) {
  SMDDP_ASSIGN_OR_RETURN(const int half, Half(of));
  SMDDP_ASSIGN_OR_RETURN(const int quarter, Half(half));  // a second one in a function
  return quarter;
}

Status Tried(int of, bool* went_on) {
  SMDDP_RETURN_IF_ERROR(Quarter(of).status());
  *went_on = true;
  return Status::Ok();
}

TEST_CASE("a result holds the value or the cause, and the macros pass the cause on") {
  CHECK(Value(Quarter(12)) == 3);
  CHECK(Quarter(12).status().ok());
  CHECK_FALSE(Quarter(6).ok());
  CHECK(Quarter(6).status().ToString() == "bad_argument: 3 is odd.");
  bool went_on = false;
  CHECK(Tried(7, &went_on).message() == "7 is odd.");
  CHECK_FALSE(went_on);
  CHECK(Tried(8, &went_on).ok());
  CHECK(went_on);
}

TEST_CASE("a result of what cannot be copied") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  REQUIRE(result.ok());
  CHECK(**result == 5);
  const std::unique_ptr<int> taken = std::move(*result);
  CHECK(*taken == 5);
}

}  // namespace
}  // namespace smddp
