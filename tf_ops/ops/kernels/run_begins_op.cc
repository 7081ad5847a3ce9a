// SmddpRunBegins: a run of a graph that holds collectives has begun (session.h BeginPlanned).
#include <memory>
#include <string>

#include "ops/collective_kernel.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

class RunBeginsKernel final : public tensorflow::OpKernel {
 public:
  explicit RunBeginsKernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
    OP_REQUIRES_OK(construction, construction->GetAttr("plan", &where_.plan));
    OP_REQUIRES_OK(construction, construction->GetAttr("site", &where_.site));
    OP_REQUIRES_OK(construction, construction->GetAttr("alone", &where_.alone));
    name_ = NameAt(name_, where_.site);
  }

  // Without a session the collective itself fails, with an error that says why.
  void Compute(tensorflow::OpKernelContext* context) override {
    const Result<std::shared_ptr<Session>> session = SessionOf(process_set_);
    if (!session.ok() || (*session)->topology().size() == 1) return;
    if (where_.plan < 0) return (*session)->Begin(name_);
    PlannedTensor where = where_;
    where.run = RunOf(context);
    (*session)->BeginPlanned(where);
  }
  bool IsExpensive() override { return false; }

 private:
  std::string name_;
  int process_set_ = 0;
  PlannedTensor where_;
};

REGISTER_KERNEL_BUILDER(Name("SmddpRunBegins").Device(tensorflow::DEVICE_CPU), RunBeginsKernel);

}  // namespace
}  // namespace smddp::ops
