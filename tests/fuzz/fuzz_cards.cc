// What rank 0 hands on of the ranks' GPUs: read, written again, and decided upon.
#include "collectives/device/cards.h"
#include "core/check.h"
#include "fuzz/there_and_back.h"
#include "runtime/announcement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto topology = smddp::Topology::Build(0, {"a", "a", "b", "b"});
  const auto texts =
      smddp::DecodeCards(std::string(reinterpret_cast<const char*>(data), size), topology.value().size());
  if (!texts.ok()) return 0;
  std::vector<smddp::DeviceCard> cards(texts.value().size());
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (!fuzz::ThereAndBack(texts.value()[rank], &cards[rank])) return 0;
  }
  const auto decision = smddp::Decide(topology.value(), cards);
  if (!decision.ok() || decision.value().stage == smddp::DeviceStage::kHost) return 0;
  for (const smddp::DeviceCard& card : cards) SMDDP_CHECK(card.has_device);
  return 0;
}
