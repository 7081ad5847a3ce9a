// Turns a framework's request into a named request: the announcement, and the task that begins once the ranks agree.
//
// Threads: any. The requests' `begin` and BeginZeros run on the engine's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/fabric.h"
#include "runtime/api/session.h"
#include "runtime/control/zero_memory.h"
#include "runtime/requests/named_request.h"
#include "runtime/verify/verify.h"

namespace smddp {

class RequestBuilder {
 public:
  // Both outlive the requests.
  RequestBuilder(const Fabric& fabric, const Verifier& verifier) : fabric_(fabric), verifier_(verifier) {}

  NamedRequest Build(Request request, DoneCallback done) const;
  // Allreduces with the same arithmetic as one, which answers all of them.
  NamedRequest Fused(std::vector<NamedRequest> requests) const;
  // The part of a rank that has joined in an allreduce of the others. What the task refers to is put into `*keep`. No
  // task: there is nothing to contribute.
  Result<TaskPtr> BeginZeros(const Verdict& verdict, ZeroMemory& zeros, std::shared_ptr<void>* keep) const;

 private:
  // `verified` receives the results that are allocated; it outlives the task. Null: nothing is checked.
  using Begin = std::function<Result<TaskPtr>(const Verdict& verdict, VerifiedCall* verified)>;
  // What to check of a call. Nothing without SMDDP_VERIFY.
  std::optional<VerifiedCall> Describe(const Announcement& announcement, const std::vector<TensorRef>& tensors) const;

  const Fabric& fabric_;
  const Verifier& verifier_;
};

}  // namespace smddp
