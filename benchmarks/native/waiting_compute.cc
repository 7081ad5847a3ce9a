// Two TensorFlow ops that stand for the work of an accelerator: they take time, but no core. For `benchmarks.scaling`.
//
// SmddpBenchClock gives the time at which a step began. SmddpBenchReady passes its value on at `offset` * `scale`
// seconds after that: as a device does, it does not wait for the ops before it to be seen by the host. One thread of
// the library waits for all of them; no thread of TensorFlow's is held.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using Clock = std::chrono::steady_clock;

/// Runs functions at given times, in their order, on a thread of its own.
class Timer {
 public:
  Timer() : thread_([this] { Run(); }) {}

  ~Timer() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void At(Clock::time_point when, std::function<void()> run) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      waiting_.emplace(when, std::move(run));
    }
    changed_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_ending_) {
      if (waiting_.empty()) {
        changed_.wait(lock);
      } else if (waiting_.begin()->first > Clock::now()) {
        changed_.wait_until(lock, waiting_.begin()->first);
      } else {
        const std::function<void()> run = std::move(waiting_.begin()->second);
        waiting_.erase(waiting_.begin());
        lock.unlock();
        run();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::function<void()>> waiting_;
  bool is_ending_ = false;
  std::thread thread_;
};

Timer& TheTimer() {
  static Timer timer;
  return timer;
}

class ClockOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* now = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &now));
    now->scalar<double>()() = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  }
};

class ReadyOp : public tensorflow::AsyncOpKernel {
 public:
  explicit ReadyOp(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("offset", &offset_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    context->set_output(0, context->input(0));
    const double when = context->input(1).scalar<double>()() + offset_ * context->input(2).scalar<double>()();
    const auto since_epoch = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(when));
    TheTimer().At(Clock::time_point(since_epoch), [context, done] { (*context->runner())(done); });
  }

 private:
  float offset_ = 0;
};

REGISTER_OP("SmddpBenchClock")
    .Output("now: double")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// Not stateful: tf.function would run all of them one after another.
REGISTER_OP("SmddpBenchReady")
    .Input("value: float")
    .Input("start: double")
    .Input("scale: double")
    .Attr("offset: float")
    .Output("ready: float")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

REGISTER_KERNEL_BUILDER(Name("SmddpBenchClock").Device(tensorflow::DEVICE_CPU), ClockOp);
REGISTER_KERNEL_BUILDER(Name("SmddpBenchReady").Device(tensorflow::DEVICE_CPU), ReadyOp);

}  // namespace
