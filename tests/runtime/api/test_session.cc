#include <set>

#include "native/testing.h"
#include "runtime/api/session.h"

namespace smddp {
namespace {

TEST_CASE("session: sizes of a tensor") {
  const TensorRef matrix = {DType::kFloat32, {5, 3, 2}};
  CHECK(matrix.elements() == 30);
  CHECK(matrix.row_bytes() == 24);
  CHECK(matrix.bytes() == 120);
  const TensorRef scalar = {DType::kFloat64, {}};
  CHECK(scalar.elements() == 1);
  CHECK(scalar.row_bytes() == 8);
  CHECK(TensorRef{DType::kInt8, {0, 7}}.row_bytes() == 7);
  CHECK(TensorRef{DType::kInt8, {0, 7}}.bytes() == 0);
}

TEST_CASE("session: every event has a name of its own") {
  std::set<std::string> names;
  const int last = static_cast<int>(TraceWhat::kStepDone);
  for (int what = 0; what <= last; ++what) names.insert(NameOf(static_cast<TraceWhat>(what)));
  CHECK(static_cast<int>(names.size()) == last + 1);
  CHECK(std::string(NameOf(TraceWhat::kBucketStart)) == "bucket_start");
  CHECK(std::string(NameOf(TraceWhat::kStepDone)) == "step_done");
}

TEST_CASE("session: the error without one says whether there was one") {
  CHECK(NotInitialized(false).reason() == Reason::kBadState);
  CHECK(Begins(NotInitialized(false).message(), "Horovod has not been initialized; use hvd.init()."));
  CHECK(Has(NotInitialized(false).message(), "this is smddp_tf"));
  CHECK(Has(NotInitialized(true).message(), "hvd.shutdown() has ended the session."));
}

}  // namespace
}  // namespace smddp
