#include "native/testing.h"
#include "transport/tcp/handshake.h"

namespace smddp {
namespace {

const Bits128 kKey = {3, 4};

TEST_CASE("handshake: who knows the key proves it") {
  const Bits128 challenge = Value(Unpredictable());
  const Claim claim = Value(MakeClaim(kKey, challenge, {7, 2, 5, 1}));
  CHECK(IsSigned(kKey, challenge, claim));
  CHECK_FALSE(IsSigned({3, 5}, challenge, claim));
  CHECK(ProofFor(kKey, claim) != ProofFor({3, 5}, claim));
  CHECK(ProofFor(kKey, claim) != claim.signature);  // else a claim could be sent back as its proof
}

TEST_CASE("handshake: a claim holds for one challenge, and for what it says") {
  const Bits128 challenge = Value(Unpredictable()), other = Value(Unpredictable());
  REQUIRE(challenge != other);
  const Claim claim = Value(MakeClaim(kKey, challenge, {7, 2, 5, 1}));
  CHECK_FALSE(IsSigned(kKey, other, claim));
  for (uint32_t Ends::* field : {&Ends::context, &Ends::from, &Ends::to, &Ends::version}) {
    Claim changed = claim;
    changed.ends.*field += 1;
    CHECK_FALSE(IsSigned(kKey, challenge, changed));
    CHECK(ProofFor(kKey, Value(MakeClaim(kKey, challenge, claim.ends))) != ProofFor(kKey, claim));
  }
}

}  // namespace
}  // namespace smddp
