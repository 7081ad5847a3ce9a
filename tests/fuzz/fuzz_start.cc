// The exchange at the start: the other ranks' hello, the names of their shared memory, their view of the link.
#include <memory>

#include "core/process/log.h"
#include "fuzz/input.h"
#include "inproc/hub.h"
#include "runtime/bootstrap/bootstrap.h"

namespace {

smddp::Env EnvOfRankZero() {
  smddp::Env env;
  env.host_id = "a";
  env.chunk_bytes = 4096;
  env.bucket_bytes = 4096;
  env.rail_algorithm = "direct";
  return env;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  smddp::SetLog(smddp::LogLevel::kOff, 0);
  fuzz::Input input(data, size);
  // The first round is more often than not a hello like mine with a piece of it changed.
  int round = 0;
  smddp::Exchange exchange;
  exchange.gather = [&](const std::string& mine) -> smddp::Result<std::vector<std::string>> {
    std::string other = input.TakeText();
    if (round++ == 0 && input.Take<uint8_t>() % 4 != 0) {
      const size_t at = mine.empty() ? 0 : input.Take<uint16_t>() % mine.size();
      other = mine.substr(0, at) + other + mine.substr(std::min(mine.size(), at + other.size()));
    }
    return std::vector<std::string>{mine, other};
  };
  const smddp::RailChoice rail = {*smddp::RailAlgorithmNamed("direct"), {}};
  smddp::InprocHub hub(2);
  const auto parts = smddp::Bootstrap(0, EnvOfRankZero(), exchange, std::make_unique<smddp::InprocTransport>(hub, 0),
                                      smddp::Deadline::After(1), &rail);
  (void)parts.ok();
  return 0;
}
