// SMDDP_VERIFY=1: every collective is checked before its caller is told that it is done.
//
// The task of an operation is put inside of another, which reads the inputs before and the outputs after it. Then the
// ranks exchange their records (runtime/verification.h) in a ring, under the operation's own number: transfers of one
// pair and tag are matched in order, and its own are over. All ranks have all records, so all come to the same
// conclusion; where bytes differ, a few more exchanges of 16 checksums each narrow them down to an element. A finding
// ends the session, everywhere: the results of the operation reach no caller.
//
// Results and their order stay the same. Off, nothing is made and nothing is read.
//
// Threads: the engine's, but for Watch.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "core/env.h"
#include "runtime/verification.h"

namespace smddp {

using VerificationPtr = std::shared_ptr<Verification>;

class Verifier {
 public:
  // `fabric` outlives it.
  Verifier(const Fabric& fabric, const Env& env) : fabric_(fabric), on_(env.verify) {
    if (env.flipped_bit.rank == fabric.topology.global_rank(fabric.topology.rank())) flip_ = env.flipped_bit;
  }

  bool on() const { return on_; }
  // Of a call that the ranks agree on; null of null.
  VerificationPtr Watch(const VerifiedCall* call) const {
    return call != nullptr ? std::make_shared<Verification>(fabric_, *call) : nullptr;
  }
  // Makes the operation's task with `begin` and puts it inside of the one that checks it. `verification` may be null:
  // nothing is checked.
  Result<TaskPtr> Begin(VerificationPtr verification, uint32_t operation,
                        const std::function<Result<TaskPtr>()>& begin);

 private:
  const Fabric& fabric_;
  const bool on_;
  FlippedBit flip_;  // for tests; until it has been done
};

}  // namespace smddp
