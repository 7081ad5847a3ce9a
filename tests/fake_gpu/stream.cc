#include "stream.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "settings.h"

namespace smddp::fake {
namespace {

// Handles in use, and those that were.
template <class T>
class Handles {
 public:
  explicit Handles(const char* what) : what_(what) {}
  void* Add(std::shared_ptr<T> made) {
    const std::lock_guard<std::mutex> lock(mutex_);
    void* const handle = new char;  // never deleted: no number twice
    known_[handle] = std::move(made);
    fake::Add(what_, 1);
    return handle;
  }
  std::shared_ptr<T> Find(void* handle, const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(handle);
    if (found == known_.end()) Fatal(call + " got something that is not one of " + what_ + ".");
    if (found->second == nullptr) Fatal(call + " got one of " + what_ + " that was destroyed.");
    return found->second;
  }
  std::vector<std::shared_ptr<T>> All() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<T>> all;
    for (const auto& [handle, made] : known_) {
      if (made != nullptr) all.push_back(made);
    }
    return all;
  }
  std::shared_ptr<T> Remove(void* handle, const std::string& call) {
    std::shared_ptr<T> found = Find(handle, call);
    const std::lock_guard<std::mutex> lock(mutex_);
    known_[handle] = nullptr;
    fake::Add(what_, -1);
    return found;
  }

 private:
  const std::string what_;
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<T>> known_;
};

struct State {
  Handles<Stream> streams{"streams"};
  Handles<Event> events{"events"};
  std::mutex mutex;
  std::map<int, std::shared_ptr<Stream>> default_streams;
  std::map<int, std::vector<std::shared_ptr<Queue>>> queues;  // of a device, with FAKE_GPU_QUEUES
  std::map<int, size_t> streams_made;
  std::map<int, std::string> broken;
  uint64_t made = 0;
};
State& TheState() {
  static State* const state = new State;
  return *state;
}

uint64_t NextNumber() {
  const std::lock_guard<std::mutex> lock(TheState().mutex);
  return TheState().made++;
}

constexpr auto kPatience = std::chrono::seconds(30);

std::shared_ptr<Stream> NewStreamOf(int device) {
  const size_t queues = Read().queues;
  if (queues == 0) return std::make_shared<Stream>(device, Queue::Make(device), true);
  State& state = TheState();
  std::unique_lock<std::mutex> lock(state.mutex);
  const size_t index = state.streams_made[device]++ % queues;
  lock.unlock();
  const std::shared_ptr<Queue> made = Queue::Make(device);
  lock.lock();
  std::vector<std::shared_ptr<Queue>>& all = state.queues[device];
  all.resize(std::max(all.size(), queues));
  if (all[index] == nullptr) all[index] = made;
  if (all[index] != made) made->Close();
  return std::make_shared<Stream>(device, all[index], false);
}

}  // namespace

void Moment::Come() {
  const std::lock_guard<std::mutex> lock(mutex_);
  come_ = true;
  changed_.notify_all();
}

void Moment::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return come_; });
}

bool Moment::has_come() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return come_;
}

Queue::Queue(int device) : device_(device), random_(Read().seed * 1000003 + NextNumber()) {}

std::shared_ptr<Queue> Queue::Make(int device) {
  std::shared_ptr<Queue> queue(new Queue(device));
  std::thread([queue] { queue->Run(); }).detach();  // it ends after Close, or with the process
  return queue;
}

void Queue::Put(std::function<void()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (ended_) {  // its stream was destroyed meanwhile, and has run all
    lock.unlock();
    return work();
  }
  work_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Moment> Stream::Now() {
  auto moment = std::make_shared<Moment>();
  Put([moment] { moment->Come(); });
  return moment;
}

void Queue::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Queue::Run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !work_.empty(); });
      ended_ = work_.empty();
      if (ended_) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    const int64_t delay = Read().delay_us;
    if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % (delay + 1)));
    const Status failed = Call("work");
    if (!failed.ok()) Break(device_, failed.message());
    work();
  }
}

void* MakeStream(int device) { return TheState().streams.Add(NewStreamOf(device)); }

void* MakeEvent(int device) {
  auto event = std::make_shared<Event>();
  event->device = device;
  return TheState().events.Add(std::move(event));
}

std::shared_ptr<Stream> StreamOf(int device, void* handle, const char* call) {
  State& state = TheState();
  if (handle == nullptr) {
    std::unique_lock<std::mutex> lock(state.mutex);
    if (const auto found = state.default_streams.find(device); found != state.default_streams.end()) {
      return found->second;
    }
    lock.unlock();
    std::shared_ptr<Stream> made = NewStreamOf(device);
    lock.lock();
    const auto added = state.default_streams.emplace(device, made);
    if (!added.second) made->Close();
    return added.first->second;
  }
  std::shared_ptr<Stream> stream = state.streams.Find(handle, call);
  if (stream->device() != device) {
    Fatal(std::string(call) + " at device " + std::to_string(device) + " got a stream of device " +
          std::to_string(stream->device()) + ".");
  }
  return stream;
}

std::shared_ptr<Event> EventOf(void* handle, const char* call) { return TheState().events.Find(handle, call); }

void DestroyStream(int device, void* handle) {
  StreamOf(device, handle, "DestroyStream");
  TheState().streams.Remove(handle, "DestroyStream")->Close();
}

void DestroyEvent(int device, void* handle) {
  const std::shared_ptr<Event> event = TheState().events.Remove(handle, "DestroyEvent");
  if (event->device != device) Fatal("DestroyEvent at another device than the event's.");
}

void WaitForDevice(int device) {
  std::vector<std::shared_ptr<Stream>> streams = TheState().streams.All();
  {
    const std::lock_guard<std::mutex> lock(TheState().mutex);
    if (const auto found = TheState().default_streams.find(device); found != TheState().default_streams.end()) {
      streams.push_back(found->second);
    }
  }
  std::vector<std::shared_ptr<Moment>> moments;
  for (const auto& stream : streams) {
    if (stream->device() == device) moments.push_back(stream->Now());
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (const auto& moment : moments) {
    while (!moment->has_come()) {
      if (std::chrono::steady_clock::now() > end)
        Fatal("A call has waited for 30 s for the work of its device: a deadlock.");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

bool RandomBit() {
  thread_local std::mt19937_64 random(Read().seed * 1000003 + NextNumber());
  return random() % 2 == 0;
}

void Break(int device, const std::string& why) {
  const std::lock_guard<std::mutex> lock(TheState().mutex);
  TheState().broken.emplace(device, why);
}

Status Broken(int device) {
  const std::lock_guard<std::mutex> lock(TheState().mutex);
  const auto found = TheState().broken.find(device);
  return found == TheState().broken.end() ? Status::Ok() : Status(Reason::kInternal, found->second);
}

}  // namespace smddp::fake
