// Shared by all kernels: the kernel finds the session of its process set, submits one request, and returns without
// waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/api/session.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/graph.h"

namespace smddp::ops {

// An attribute of the op. Where there is none of that type, `construction` carries the error afterwards.
template <class T>
T ReadAttribute(tensorflow::OpKernelConstruction* construction, const char* name) {
  T value{};
  const absl::Status status = construction->GetAttr(name, &value);
  if (!status.ok()) construction->CtxFailure(status);
  return value;
}

// An asynchronous kernel that turns its inputs into one request to the session.
//
// Threads:   ComputeAsync runs on TensorFlow's pool and returns at once; `done` is called from the engine thread, or
//            from ComputeAsync itself when the request could not be made.
// Ownership: `context` holds the input and output buffers until TensorFlow's `done`, which is called exactly once.
class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit CollectiveKernel(tensorflow::OpKernelConstruction* construction);

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;
  // Submitting is cheap: TensorFlow need not wake another thread for it.
  bool IsExpensive() final { return false; }

 protected:
  // Makes the request and passes `done` on with it, or calls `done` with the error.
  virtual void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) = 0;
  // Notifies the session that TensorFlow has cancelled the step that holds the request. It may outlive the kernel.
  using Canceller = std::function<void(Session&)>;
  virtual Canceller OnCancel(tensorflow::OpKernelContext* context) const;

  // The name by which the ranks match requests, with the site number where a graph holds several of that name.
  const std::string& tensor_name() const { return tensor_name_; }
  int site() const { return site_; }

 private:
  std::string tensor_name_;
  int site_ = 0;
  int process_set_ = 0;
};

// The number of the execution of the graph, and of its loop's iteration, in which a kernel runs (PlannedTensor::run).
uint64_t RunOf(tensorflow::OpKernelContext* context);
// `name` at place `site` (registrations.cc).
std::string NameAt(const std::string& name, int site);

// Reads the attributes of a reduction. The scales are attributes of type int that hold the bits of a float64, because
// an attribute of type float has only 32 bits. On a bad value `construction` carries the error afterwards.
Arithmetic ReadArithmetic(tensorflow::OpKernelConstruction* construction);

// Makes a run of a graph known to the engine before an op of it can fail, so that a run that fails before it has
// brought a collective is not taken for one that has not begun (kernels/run_begins.cc). Adds an SmddpRunBegins for each
// of `collectives` that runs in every run of the graph (in no branch and no loop), in front of all ops but those that
// read the next batch: where the data end, no step begins. Nothing is added to graphs that read a batch after a
// collective.
absl::Status AddRunBegins(tensorflow::Graph* graph, const std::vector<tensorflow::Node*>& collectives);

}  // namespace smddp::ops
