#include "native/testing.h"
#include "transport/tcp/siphash.h"

namespace smddp {
namespace {

// From the authors' list of 128-bit outputs: the key is 00 01 .. 0f, the message of length n is 00 01 .. n-1.
TEST_CASE("siphash: the values of the reference implementation") {
  const Bits128 key = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
  std::string message;
  const auto next = [&] { message.push_back(static_cast<char>(message.size())); };
  CHECK(SipHash::Of(key, message) == Bits128{0xe6a825ba047f81a3ull, 0x930255c71472f66dull});
  next();
  CHECK(SipHash::Of(key, message) == Bits128{0x44af996bd8c187daull, 0x45fc229b11597634ull});
}

TEST_CASE("siphash: every bit of key and message counts") {
  const Bits128 key = {1, 2};
  const std::string message = "a message that is longer than two words";
  const Bits128 before = SipHash::Of(key, message);
  for (int bit = 0; bit < 128; ++bit) {
    Bits128 other = key;
    other[bit / 64] ^= uint64_t{1} << (bit % 64);
    CHECK(SipHash::Of(other, message) != before);
  }
  for (size_t at = 0; at < message.size(); ++at) {
    std::string other = message;
    other[at] ^= 1;
    CHECK(SipHash::Of(key, other) != before);
    CHECK(SipHash::Of(key, message.substr(0, at)) != before);
  }
}

}  // namespace
}  // namespace smddp
