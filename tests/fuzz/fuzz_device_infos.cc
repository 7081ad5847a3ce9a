// What rank 0 hands on of the ranks' GPUs: read, written again, and decided upon.
#include "collectives/device/rank_device_info.h"
#include "core/check.h"
#include "fuzz/there_and_back.h"
#include "runtime/control/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto topology = smddp::Topology::Build(0, {"a", "a", "b", "b"});
  smddp::FieldReader fields(std::string_view(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> texts;  // as a verdict has them
  fields(texts);
  if (!fields.at_end() || texts.size() != 4) return 0;
  std::vector<smddp::RankDeviceInfo> infos(texts.size());
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    if (!fuzz::ThereAndBack(texts[rank], &infos[rank])) return 0;
  }
  const auto decision = smddp::Decide(topology.value(), "auto", infos);
  if (!decision.ok() || decision.value().methods.front() == smddp::DeviceMethod::kHost) return 0;
  for (const smddp::RankDeviceInfo& info : infos) SMDDP_CHECK(info.has_device);
  return 0;
}
