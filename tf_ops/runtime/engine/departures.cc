#include "runtime/engine/departures.h"

#include "core/process/log.h"

namespace smddp {
namespace {

// Messages that a rank sent before it left arrive within this time.
constexpr int64_t kGraceNs = 1000 * 1000000LL;

}  // namespace

void Departures::Add(int rank, const Goodbye& goodbye, int64_t now_ns) {
  ranks_[rank] = {now_ns, goodbye.listens};
  Log(LogLevel::kDebug, NamedWithHost(topology_, rank) + " has ended its session" +
                            (topology_.is_process_set() ? " of a process set" : "") +
                            (goodbye.clean ? "" : " with operations under way"));
}

std::vector<int> Departures::Silent(int64_t now_ns) const {
  std::vector<int> silent;
  for (const auto& [rank, departure] : ranks_) {
    if (now_ns - departure.when_ns >= kGraceNs) silent.push_back(rank);
  }
  return silent;
}

std::string Departures::Sentence(int rank) const {
  return "Rank " + std::to_string(topology_.global_rank(rank)) +
         " has ended its session (hvd.shutdown, an exception or the end of its program)";
}

}  // namespace smddp
