// The process that started this rank, and the note to it that says why this rank ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

namespace smddp {

// The nearest ancestor that is a launcher or its daemon on this host (mpirun, prted, hydra_pmi_proxy, slurmstepd,
// ...). Shells and wrappers in between are skipped; their ends do not matter. None where no ancestor has such a name:
// in a container with its own process namespace, or under an unknown launcher.
class Launcher {
 public:
  static std::optional<Launcher> Find();

  pid_t process() const { return process_; }
  // False once it has ended, also while it is a zombie and after its process number has been reused.
  bool lives() const;

 private:
  Launcher(pid_t process, std::string started) : process_(process), started_(std::move(started)) {}

  pid_t process_;
  std::string started_;  // its start time, as in /proc
};

// Why this rank ends: by its own exception, because another rank ended, or because a rank is lost. The supervisor
// (smddp_tf/run/rank/supervisor.py) reads the note where it started the rank, to name the rank that was the cause.
// Otherwise the note has no effect.
enum class EndNote : char { kRaised = 'R', kBecauseOfOther = 'B', kBecauseOfLost = 'L' };
void TellLauncher(EndNote note, const std::string& text);

}  // namespace smddp
