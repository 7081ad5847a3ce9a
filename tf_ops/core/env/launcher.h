// The process that started this rank, and what a rank says to it of its own end.
#pragma once

#include <sys/types.h>

#include <string>

namespace smddp {

// The nearest ancestor that is a launcher or its daemon on this host (mpirun, prted, hydra_pmi_proxy, slurmstepd, ...),
// through shells and wrappers in between, whose ends mean nothing. None where no ancestor has such a name: in a
// container of its own, or under a launcher that is not known here.
class Launcher {
 public:
  static Launcher Find();

  // 0: none.
  pid_t process() const { return process_; }
  // False once it has ended, also while nobody has waited for it (a zombie) and when its number has been used again.
  bool lives() const;

 private:
  pid_t process_ = 0;
  std::string started_;  // as the kernel counts
};

// Whether this rank ends by itself, because another one ends, or because one is lost: smddprun's rank.py reads it where
// it started the rank, to name the rank that was the cause. Does nothing elsewhere.
enum class EndNote : char { kRaised = 'R', kBecauseOfOther = 'B', kBecauseOfLost = 'L' };
void TellLauncher(EndNote note, const std::string& text);

}  // namespace smddp
