#include "runtime/timeline.h"

#include <unistd.h>

#include <chrono>

#include "core/clock.h"

namespace smddp {
namespace {

constexpr std::chrono::milliseconds kWriteEvery(100);

std::string HostName() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return host;
}

int64_t EpochMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Timeline::Record() {
  if (!recording_) trace_.StartStream();
  recording_ = true;
}

void Timeline::WriteTo(std::unique_ptr<TimelineFile> file, int64_t zero_ns, bool mark_cycles) {
  file_ = std::move(file);
  zero_ns_ = zero_ns;
  mark_cycles_ = mark_cycles;
  stopping_ = false;
  dropped_ = 0;
  writer_ = std::thread([this] { WriteLoop(); });
}

void Timeline::Stop() {
  if (recording_) trace_.StopStream();
  recording_ = false;
  if (!writer_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  writer_.join();
}

void Timeline::WriteLoop() {
  TimelineText text(rank_, zero_ns_, mark_cycles_);
  const int64_t epoch_of_zero_us = EpochMicroseconds() - (NowNs() - zero_ns_) / 1000;
  file_->Append(text.Header(HostName(), epoch_of_zero_us));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    WriteOnce(&text);
    lock.lock();
    wake_.wait_for(lock, kWriteEvery, [this] { return stopping_; });
  }
  lock.unlock();
  WriteOnce(&text);
  const int64_t now_ns = NowNs();
  std::string last = text.Close(now_ns);
  if (dropped_ > 0) last += text.Dropped(dropped_, now_ns);
  file_->Append(last);
}

void Timeline::WriteOnce(TimelineText* text) {
  dropped_ += trace_.TakeStream(&taken_);
  std::string lines;
  for (const TraceEvent& event : taken_) lines += text->Add(event);
  if (!file_->Append(lines)) dropped_ += static_cast<int64_t>(taken_.size());
}

}  // namespace smddp
