#include "transport/tcp/handshake.h"

#include <sys/random.h>

#include <string>

namespace smddp {
namespace {

template <class T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Each side signs texts that begin with its own letter, so that neither's can be sent back as the other's.
Bits128 Sign(const Bits128& key, const Bits128& challenge, const Claim& claim) {
  std::string text = "C";
  text.append(BytesOf(challenge)).append(BytesOf(claim.ends)).append(BytesOf(claim.nonce));
  return SipHash::Of(key, text);
}

}  // namespace

Result<Bits128> Unpredictable() {
  Bits128 bits;
  if (getrandom(bits.data(), sizeof(bits), 0) == sizeof(bits)) return bits;
  return Status(Reason::kNoResources, "The kernel gave no random bytes (getrandom).");
}

Result<Claim> MakeClaim(const Bits128& key, const Bits128& challenge, const Ends& ends) {
  Claim claim;
  claim.ends = ends;
  SMDDP_ASSIGN_OR_RETURN(claim.nonce, Unpredictable());
  claim.signature = Sign(key, challenge, claim);
  return claim;
}

bool IsSigned(const Bits128& key, const Bits128& challenge, const Claim& claim) {
  const Bits128 expected = Sign(key, challenge, claim);
  return ((expected[0] ^ claim.signature[0]) | (expected[1] ^ claim.signature[1])) == 0;
}

Bits128 ProofFor(const Bits128& key, const Claim& claim) {
  return SipHash::Of(key, std::string("A").append(BytesOf(claim.nonce)).append(BytesOf(claim.signature)));
}

}  // namespace smddp
