// An uncaught exception on one rank ends the job, and its traceback should be the last output.
//
// The rank that raised notifies the others. Each fails its session, prints one line and answers kAcknowledged. Then
// the first rank prints its traceback and sends kPrintedTraceback. The others stay until then, because a launcher
// ends the job when its first process has ended.
//
// Threads: Raise, Shown and OnMessage on the engine's; the rest from any.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/control/component.h"

namespace smddp {

class ExceptionNotice : public Component {
 public:
  explicit ExceptionNotice(ControlBus& bus) : bus_(bus) {}

  // This rank raised: "ValueError: no such file".
  void Raise(const std::string& exception);
  void TracebackPrinted();
  Status OnMessage(int from, std::string_view message) override;

  // The number of ranks that have printed that this one raised.
  int acknowledged() const { return acknowledged_; }
  // The exception that another rank has reported; "" when there is none.
  std::string raised_elsewhere() const;
  // That rank has printed its traceback.
  bool printed_elsewhere() const { return printed_elsewhere_; }

 private:
  struct Message;

  ControlBus& bus_;
  bool raised_ = false;
  std::atomic<int> acknowledged_{0};
  std::atomic<bool> printed_elsewhere_{false};
  mutable std::mutex mutex_;
  std::string raised_elsewhere_;
};

}  // namespace smddp
