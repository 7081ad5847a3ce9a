// SmddpTopologyValue: the values of hvd.size() and similar functions when the op runs. A graph may outlive the
// session in which it was traced (elastic training), so they must not be constants.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "runtime/api/session.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace smddp::ops {
namespace {

// Horovod's HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET.
constexpr int kUnknownSet = -3;

class TopologyValueKernel final : public tensorflow::OpKernel {
 public:
  explicit TopologyValueKernel(tensorflow::OpKernelConstruction* construction) : tensorflow::OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("what", &what_));
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const Result<int> value = Value();
    OP_REQUIRES_OK(context, ToTensorFlow(value.status()));
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape(), &output));
    output->scalar<int>()() = value.value();
  }
  bool IsExpensive() final { return false; }

 private:
  Result<int> Value() const {
    const std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return NotInitialized();
    const Topology& topology = session->topology();
    if (what_ == "rank") return topology.rank();
    if (what_ == "local_rank") return topology.local_rank();
    if (what_ == "local_size") return topology.local_size();
    const std::map<int, std::vector<int>> sets = ProcessSets();
    const auto set = sets.find(process_set_);
    if (what_ == "included" && set == sets.end()) return kUnknownSet;
    if (set == sets.end()) return SessionOf(process_set_).status();
    const std::vector<int>& ranks = set->second;
    if (what_ == "size") return static_cast<int>(ranks.size());
    const auto place = std::find(ranks.begin(), ranks.end(), topology.rank());
    if (what_ == "included") return static_cast<int>(place != ranks.end());
    if (place == ranks.end()) return SessionOf(process_set_).status();
    return static_cast<int>(place - ranks.begin());
  }

  std::string what_;
  int process_set_ = 0;
};

[[maybe_unused]] const bool registered = Register<TopologyValueKernel>("SmddpTopologyValue", {}, {"value"});

}  // namespace
}  // namespace smddp::ops
