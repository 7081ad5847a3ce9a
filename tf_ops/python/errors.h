// How errors of the engine reach Python: ValueError for invalid arguments, EngineError for the rest.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <utility>

#include "core/status.h"

namespace smddp {

// Becomes smddp_tf._core.EngineError, a RuntimeError with the attribute `reason`; also when thrown by a module that
// is loaded after _core.
class EngineError : public std::runtime_error {
 public:
  explicit EngineError(const Status& status) : std::runtime_error(status.message()), reason_(status.reason()) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

inline void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  if (status.reason() == Reason::kBadArgument) throw nanobind::value_error(status.message().c_str());
  throw EngineError(status);
}

template <class T>
T ValueOrThrow(Result<T> result) {
  ThrowIfError(result.status());
  return std::move(*result);
}

}  // namespace smddp
