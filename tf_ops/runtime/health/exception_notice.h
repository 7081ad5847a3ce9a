// An exception that nobody caught on one rank ends the job, and its traceback is what is read last.
//
// The rank that raised tells the others. Each fails its session, prints one line and says so (kAcknowledged). Then the
// first one prints its traceback and says so too (kPrintedTraceback): until then the others stay, because a launcher
// ends the job when the first process of it has gone.
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

  // The ranks that have printed that this one raised.
  int acknowledged() const { return acknowledged_; }
  // What another rank has said of its exception; "" when none has.
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
