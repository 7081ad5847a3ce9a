// The process that started this rank.
#pragma once

#include <sys/types.h>

namespace smddp {

// The nearest ancestor that is a launcher or its daemon on this host (mpirun, prted, hydra_pmi_proxy, slurmstepd, ...),
// through shells and wrappers in between; the parent when there is none.
pid_t LauncherProcess();
// False once that process has ended. True when the kernel does not say.
bool ProcessLives(pid_t process);

}  // namespace smddp
