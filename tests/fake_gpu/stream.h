// Streams are threads that run what they hold, one piece of work after the other; events as CUDA has them.
// Threads: any. Handles that were destroyed stay known: whoever uses one is told.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>

#include "core/status.h"

namespace smddp::fake {

// A moment in a stream that has come or not.
class Moment {
 public:
  void Come();
  void Wait();
  bool has_come();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool come_ = false;
};

// What runs the work of one stream, or of several (FAKE_GPU_QUEUES), in the order in which it was put.
class Queue {
 public:
  static std::shared_ptr<Queue> Make(int device);
  void Put(std::function<void()> work);
  // What it holds is still run; the thread ends after it.
  void Close();

 private:
  explicit Queue(int device);
  void Run();

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool closed_ = false, ended_ = false;
  std::mt19937_64 random_;
};

class Stream {
 public:
  Stream(int device, std::shared_ptr<Queue> queue, bool own) : device_(device), queue_(std::move(queue)), own_(own) {}
  int device() const { return device_; }
  void Put(std::function<void()> work) { queue_->Put(std::move(work)); }
  // A moment behind all that was put so far.
  std::shared_ptr<Moment> Now();
  void Close() {
    if (own_) queue_->Close();
  }

 private:
  const int device_;
  const std::shared_ptr<Queue> queue_;
  const bool own_;
};

struct Event {
  int device = 0;
  std::mutex mutex;
  std::shared_ptr<Moment> recorded;  // null before the first Record
};

// Handles. Null is the device's default stream.
void* MakeStream(int device);
void* MakeEvent(int device);
std::shared_ptr<Stream> StreamOf(int device, void* handle, const char* call);
std::shared_ptr<Event> EventOf(void* handle, const char* call);
void DestroyStream(int device, void* handle);
void DestroyEvent(int device, void* handle);

// Until the device has run all that its streams hold by now. Ends the process after 30 s: then it is a deadlock.
void WaitForDevice(int device);
bool RandomBit();

// An error on the device stays, as with CUDA: all later calls return it.
void Break(int device, const std::string& why);
Status Broken(int device);

}  // namespace smddp::fake
