// Turns a framework's request into a named request: the announcement, and the task that begins once the ranks agree.
//
// Threads: any. The requests' `begin` runs on the engine's.
#pragma once

#include "collectives/fabric.h"
#include "runtime/api/session.h"
#include "runtime/named/named_table.h"
#include "runtime/verify/verify.h"

namespace smddp {

class RequestBuilder {
 public:
  // Both outlive the requests.
  RequestBuilder(const Fabric& fabric, const Verifier& verifier) : fabric_(fabric), verifier_(verifier) {}

  // kAllreduce or kReducescatter.
  NamedRequest Reduction(RequestKind kind, const AllreduceRequest& request, DoneCallback done);
  NamedRequest Broadcast(BroadcastRequest request, DoneCallback done);
  NamedRequest Allgather(AllgatherRequest request, DoneCallback done);
  NamedRequest Alltoall(AlltoallRequest request, DoneCallback done);
  NamedRequest Barrier(const BarrierRequest& request, DoneCallback done);

 private:
  const Fabric& fabric_;
  const Verifier& verifier_;
};

}  // namespace smddp
