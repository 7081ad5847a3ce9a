#include "core/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace smddp {
namespace {

// As the kernel has them: at most 15 characters.
constexpr const char* kLaunchers[] = {"mpirun", "mpiexec", "orterun",       "prterun",         "prte",
                                      "prted",  "orted",   "mpiexec.hydra", "hydra_pmi_proxy", "slurmstepd"};

bool IsLauncher(const std::string& name) {
  return std::find(std::begin(kLaunchers), std::end(kLaunchers), name) != std::end(kLaunchers);
}

struct Ancestor {
  pid_t parent = 0;  // 0: there is none, or it cannot be read
  std::string name;
};

Ancestor Describe(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t open = text.find('('), close = text.rfind(") ");  // "12 (name) S 11 ..."
  if (open == std::string::npos || close == std::string::npos || text.size() < close + 5) return {};
  return {std::atoi(text.c_str() + close + 4), text.substr(open + 1, close - open - 1)};
}

}  // namespace

pid_t LauncherProcess() {
  for (pid_t process = getppid(); process > 1;) {
    const Ancestor ancestor = Describe(process);
    if (IsLauncher(ancestor.name)) return process;
    process = ancestor.parent;
  }
  return getppid();
}

bool ProcessLives(pid_t process) { return kill(process, 0) == 0 || errno != ESRCH; }

}  // namespace smddp
