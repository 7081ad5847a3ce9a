// An uncaught exception on one rank ends the job, and its traceback should be the last output.
//
// The rank that raised notifies the others. Each fails its session, prints one line and answers kAcknowledged. Then
// the first rank prints its traceback and sends kPrintedTraceback. The others stay until then, because a launcher
// ends the job when its first process has ended.
//
// Threads: the engine's, except for State, any.
#pragma once

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

  RaisedState State() const;

 private:
  struct Message;

  ControlBus& bus_;
  bool raised_ = false;
  mutable std::mutex mutex_;        // of what follows
  int acknowledged_ = 0;            // the number of ranks that have printed that this one raised
  std::string raised_elsewhere_;    // the exception that another rank has reported
  bool printed_elsewhere_ = false;  // that rank has printed its traceback
};

}  // namespace smddp
