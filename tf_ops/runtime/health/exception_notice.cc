#include "runtime/health/exception_notice.h"

#include "runtime/control/messages.h"

namespace smddp {

struct ExceptionNotice::Message {
  static constexpr ControlType kType = ControlType::kExceptionNotice;
  enum class Kind : uint8_t { kRaised, kAcknowledged, kPrintedTraceback };
  Kind kind = Kind::kRaised;
  std::string text;

  SMDDP_FIELDS(kind, text);
  bool IsWellFormed() const { return kind <= Kind::kPrintedTraceback && text.empty() == (kind != Kind::kRaised); }
};

void ExceptionNotice::Raise(const std::string& exception) {
  if (raised_) return;
  raised_ = true;
  const Status why(Reason::kPeerRaised, NamedWithHost(bus_.topology(), bus_.topology().rank()) +
                                            " has ended its session because of an uncaught exception: " + exception +
                                            ". Its traceback is in its own output.");
  bus_.PostToOthers(Encode(Message{Message::Kind::kRaised, why.message()}));
  bus_.FailHere(why);
}

void ExceptionNotice::TracebackPrinted() { bus_.PostToOthers(Encode(Message{Message::Kind::kPrintedTraceback, ""})); }

Status ExceptionNotice::OnMessage(int from, std::string_view bytes) {
  Message message;
  if (!Decode(bytes, &message)) return Refused(bus_.topology(), from);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (message.kind == Message::Kind::kAcknowledged) ++acknowledged_;
    if (message.kind == Message::Kind::kPrintedTraceback) printed_elsewhere_ = true;
    if (raised_elsewhere_.empty()) raised_elsewhere_ = message.text;  // "" but for kRaised
  }
  if (message.kind != Message::Kind::kRaised) return Status::Ok();
  bus_.FailHere(Status(Reason::kPeerRaised, message.text));
  bus_.Post(from, Encode(Message{Message::Kind::kAcknowledged, ""}));
  return Status::Ok();
}

RaisedState ExceptionNotice::State() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {acknowledged_ >= bus_.topology().size() - 1, raised_elsewhere_, printed_elsewhere_};
}

}  // namespace smddp
