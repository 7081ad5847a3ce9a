#include "native/kernels.h"

namespace smddp {
namespace {

TEST_CASE("kernels: generic") { CheckKernels(GenericKernels()); }

}  // namespace
}  // namespace smddp
