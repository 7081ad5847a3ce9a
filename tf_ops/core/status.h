// Status and Result: how every layer reports failures whose cause is outside.
//
// No layer of the engine throws. A function that can fail returns Status, or Result<T> when it also has a value. A
// violated invariant (a bug) is SMDDP_CHECK in core/check.h, which aborts with both values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "core/text.h"

namespace smddp {

// Why something failed. Code decides by the reason; texts are for users only.
enum class Reason : uint8_t {
  kOk,
  kBadArgument,      // the caller passed something that cannot work
  kBadState,         // the session is not in the right state
  kDisagreement,     // the requests of the ranks do not match
  kTensorsDiffer,    // only in their tensors: how many there are, their dtypes or their shapes
  kPeerLeft,         // a peer has ended its session
  kPeerRaised,       // a peer ended with an uncaught exception
  kPeerLost,         // a peer died or is silent
  kTransportFailed,  // MPI reported an error
  kTimedOut,         // a wait reached its deadline
  kStepGivenUp,      // another operation of the step failed on some rank
  kShutDown,         // this rank ended the session while the operation was under way
  kNoResources,      // no memory, no shared memory, no tag
  kUnsupported,
  kDataLoss,  // bytes differ from what was sent or computed
  kInternal,
};
constexpr Reason kLastReason = Reason::kInternal;

// Such as "peer_left"; Python code uses this name (smddp_tf/exceptions.py reason_of).
const char* NameOf(Reason reason);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `begin` and `rest`: the parts of its message (core/text.h).
  template <class Begin, class... Rest>
  Status(Reason reason, const Begin& begin, const Rest&... rest) : reason_(reason), message_(Concat(begin, rest...)) {}

  static Status Ok() { return Status(); }

  bool ok() const { return reason_ == Reason::kOk; }
  Reason reason() const { return reason_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;

 private:
  Reason reason_ = Reason::kOk;
  std::string message_;
};

// The error when another rank sent what an engine of this version does not send.
template <class... Parts>
Status OtherVersion(const Parts&... what) {
  return Status(Reason::kInternal, what..., ". Do all ranks run the same version of smddp_tf?");
}

// Either a value or the Status that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : content_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(content_); }
  Status status() const { return ok() ? Status::Ok() : std::get<Status>(content_); }
  T& value() { return std::get<T>(content_); }
  const T& value() const { return std::get<T>(content_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Status> content_;
};

}  // namespace smddp

#define SMDDP_RETURN_IF_ERROR(expression)          \
  do {                                             \
    ::smddp::Status smddp_status_ = (expression);  \
    if (!smddp_status_.ok()) return smddp_status_; \
  } while (false)

#define SMDDP_CONCAT_INNER(a, b) a##b
#define SMDDP_CONCAT(a, b) SMDDP_CONCAT_INNER(a, b)
#define SMDDP_ASSIGN_OR_RETURN(target, expression) \
  SMDDP_ASSIGN_OR_RETURN_IMPL(SMDDP_CONCAT(smddp_result_, __LINE__), target, expression)
#define SMDDP_ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  target = std::move(*result)
