#include "core/status.h"

namespace smddp {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kFailedPrecondition:
      return "failed precondition";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kAborted:
      return "aborted";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kInternal:
      return "internal error";
    case Code::kPeerLost:
      return "peer lost";
    case Code::kDataLoss:
      return "data loss";
  }
  return "unknown";
}

std::string Status::ToString() const { return ok() ? "ok" : std::string(CodeName(code_)) + ": " + message_; }

}  // namespace smddp
