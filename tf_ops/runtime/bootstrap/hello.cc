#include "runtime/bootstrap/hello.h"

#include <algorithm>

namespace smddp {
namespace {

Status Disagree(const std::string& what, const std::string& first, int rank, const std::string& other) {
  const bool is_version = what.rfind("The version", 0) == 0;
  return Status(Reason::kDisagreement,
                what + " must be the same on all ranks: rank 0 has " + first + ", rank " + std::to_string(rank) +
                    " has " + other + (is_version ? ". Install" : ". Set") + " the same one for every rank" +
                    (is_version ? ", and start each with the Python that has it." : " (smddprun or mpirun -x NAME)."));
}

std::string BytesText(int64_t bytes) { return bytes == kAutoBytes ? "auto" : std::to_string(bytes); }
std::string SwitchText(bool on) { return on ? "1" : "0"; }

// Ranks of one version have the same facts; those that the program adds may be missing.
Status SameFacts(const Hello& first, int rank, const Hello& other) {
  for (size_t i = 0; i < std::max(first.facts.size(), other.facts.size()); ++i) {
    const auto fact = [i](const Hello& hello) {
      return i < hello.facts.size() ? hello.facts[i] : std::pair<std::string, std::string>("", "nothing");
    };
    if (fact(first) == fact(other)) continue;
    const std::string what = fact(first).first.empty() ? fact(other).first : fact(first).first;
    return Disagree(what, fact(first).second, rank, fact(other).second);
  }
  return Status::Ok();
}

}  // namespace

std::string RateText(double rate) { return rate == 0 ? "auto" : std::to_string(rate); }

Facts FactsOf(const Env& env) {
  return {
      {"SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD)", BytesText(env.bucket_bytes)},
      {"SMDDP_CHUNK_BYTES", BytesText(env.chunk_bytes)},
      {"SMDDP_GPU_STAGE", env.gpu_stage},
      {"SMDDP_HEARTBEAT_TIMEOUT", std::to_string(env.heartbeat_timeout_s)},
      {"SMDDP_RAIL_ALGORITHM", env.rail_algorithm},
      {"SMDDP_RAIL_BANDWIDTH_MBPS", RateText(env.rail_bytes_per_s * 8e-6)},
      {"SMDDP_RAIL_LATENCY_US", RateText(env.rail_latency_s * 1e6)},
      {"SMDDP_VERIFY", SwitchText(env.verify)},
      {"TF_USE_LEGACY_KERAS", SwitchText(env.legacy_keras)},
      {"init(process_sets=\"dynamic\") or HOROVOD_DYNAMIC_PROCESS_SETS",
       env.dynamic_process_sets ? "dynamic ones" : "none"},
  };
}

Result<std::vector<Hello>> DecodeHellos(const std::vector<std::string>& texts) {
  std::vector<Hello> hellos(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool readable = Decode(texts[i], &hellos[i]);
    if (hellos[i].version != hellos[0].version) {
      return Disagree("The version of smddp_tf", hellos[0].version, rank, hellos[i].version);
    }
    if (!readable) {
      return Status(
          Reason::kDisagreement,
          "Rank " + std::to_string(rank) + " runs another version of smddp_tf. Install the same version on all hosts.");
    }
    SMDDP_RETURN_IF_ERROR(SameFacts(hellos[0], rank, hellos[i]));
  }
  return hellos;
}

}  // namespace smddp
