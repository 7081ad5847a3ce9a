#include <string>

#include "core/hash.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("FNV-1a of known texts") {  // the published vectors of the 64-bit variant, from the offset that is used here
  const auto step = [](uint64_t hash, unsigned char byte) { return (hash ^ byte) * 0x100000001b3ull; };
  CHECK(Fnv1a("") == 1469598103934665603ull);
  CHECK(Fnv1a("a") == step(1469598103934665603ull, 'a'));
  CHECK(Fnv1a("ab") == step(step(1469598103934665603ull, 'a'), 'b'));
  CHECK(Fnv1a("a", 0xcbf29ce484222325ull) == 0xaf63dc4c8601ec8cull);  // FNV's own start
  CHECK(Fnv1a("foobar", 0xcbf29ce484222325ull) == 0x85944171f73967e8ull);
  CHECK(Fnv1a("\xff") == step(1469598103934665603ull, 0xff));  // bytes, not signed characters
}

TEST_CASE("a hash in parts is that of the whole") {
  const std::string text = "optimizer/dense/kernel:0";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(Fnv1a(text.substr(cut), Fnv1a(text.substr(0, cut))) == Fnv1a(text));
  }
}

}  // namespace
}  // namespace smddp
