// A communicator of the session's ranks, or of those of a node, and the calls of buckets on it, which are made in the
// order that all its members share (nccl_call_order.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device/buffer_pool.h"
#include "collectives/device/nccl_call_order.h"
#include "device/group.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: the device context's; `fabric` and `events` outlive it.
// Errors:    of NCCL. One of a peer is reported after two seconds: in them the session's failure detector can name the
//            lost rank.
class GroupCalls {
 public:
  using Key = NcclCallOrder::Key;
  // Calls go on `stream`.
  GroupCalls(const Fabric& fabric, const Group& members, std::unique_ptr<DeviceGroup> group, EventPool& events,
             DeviceStream stream)
      : group_(std::move(group)), order_(fabric, members), events_(events), stream_(stream) {}

  // Have all members joined? Poll. Errors come at once.
  Result<bool> Joined() { return group_->Ready(); }
  // `call` is made when its turn comes, and runs after `after`.
  Status Submit(Key key, const GroupCall& call, PooledEventPtr after);
  // What marks the call on the stream; null: it has not been made. Poll until it is there.
  Result<PooledEventPtr> Made(Key key);
  // Does none of the calls run on the GPU?
  Result<bool> Idle() const {
    if (!launching_.empty()) return false;
    return last_ == nullptr ? true : last_->Passed();
  }
  // False: it has failed, and is not reported yet.
  Result<bool> Healthy() { return Reported(group_->Health()); }
  // The same from time to time.
  Status Check();
  std::string Describe() const { return launching_.empty() ? "waiting for " + order_.Describe() : "waiting for NCCL"; }
  // Ends work under way, on the GPU too. Only the destructor may follow. Without it the destructor waits for the work.
  void Abort() { group_->Abort(); }

 private:
  struct Waiting {
    GroupCall call;
    PooledEventPtr after;
  };
  Status Step();
  Result<bool> Reported(const Status& status);

  const std::unique_ptr<DeviceGroup> group_;
  NcclCallOrder order_;
  EventPool& events_;
  const DeviceStream stream_;
  std::map<Key, Waiting> waiting_;
  std::vector<Key> launching_;  // NCCL has not put them on the stream
  std::map<Key, PooledEventPtr> made_;
  PooledEventPtr last_;  // marks the last call on the stream
  int64_t checked_ns_ = 0, lost_ns_ = 0;
};

}  // namespace smddp
