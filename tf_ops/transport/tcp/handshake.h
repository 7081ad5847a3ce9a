// How both sides of a new connection prove that they know the job's key. The accepting side sends a challenge; the
// other one answers with a claim, which says between whom the connection is; the accepting side sends a proof. All
// three have a fixed length, and nothing of a claim is used before its signature has been found right. What follows is
// neither signed nor encrypted. Pure logic.
#pragma once

#include "core/status.h"
#include "transport/tcp/siphash.h"

namespace smddp {

// What a connection is for. Ranks are those of the whole job.
struct Ends {
  uint32_t context = 0;  // of which transport: all ranks' have the same number
  uint32_t from = 0, to = 0;
  uint32_t version = 1;  // of the frames that follow
};

struct Claim {
  Ends ends;
  Bits128 nonce = {};
  Bits128 signature = {};
};

// A number that was not used before: a challenge or a nonce.
Result<Bits128> Unpredictable();
// Of `ends`, by the connecting side.
Result<Claim> MakeClaim(const Bits128& key, const Bits128& challenge, const Ends& ends);
// Does the signature belong to this challenge?
bool IsSigned(const Bits128& key, const Bits128& challenge, const Claim& claim);
// The accepting side's proof.
Bits128 ProofFor(const Bits128& key, const Claim& claim);

}  // namespace smddp
