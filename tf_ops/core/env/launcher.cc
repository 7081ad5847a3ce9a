#include "core/env/launcher.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/env/env.h"

namespace smddp {
namespace {

// As the kernel stores them: at most 15 characters.
constexpr const char* kLaunchers[] = {"mpirun",     "mpiexec",    "orterun",       "prterun",         "prte",
                                      "prted",      "orted",      "mpiexec.hydra", "hydra_pmi_proxy", "hydra_bstrap_pr",
                                      "slurmstepd", "flux-shell", "palsd"};

constexpr size_t kMaxNoteBytes = 3500;  // with the rest below PIPE_BUF: written as a whole or not at all

bool IsLauncher(const std::string& name) {
  return std::find(std::begin(kLaunchers), std::end(kLaunchers), name) != std::end(kLaunchers);
}

struct Description {
  std::string name, state, started;  // empty: there is no such process, or it cannot be read
  pid_t parent = 0;
};

Description Describe(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t open = text.find('('), close = text.rfind(") ");  // "12 (name) S 11 ..."
  if (open == std::string::npos || close == std::string::npos) return {};
  Description found;
  found.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 2));
  fields >> found.state >> found.parent;
  constexpr int kBeforeStarted = 17;  // the start time is field 22; 4 have been read
  for (int i = 0; i <= kBeforeStarted; ++i) fields >> found.started;
  return found;
}

}  // namespace

std::optional<Launcher> Launcher::Find() {
  for (pid_t process = getppid(); process > 1;) {
    const Description ancestor = Describe(process);
    if (IsLauncher(ancestor.name)) return Launcher(process, ancestor.started);
    process = ancestor.parent;
  }
  return std::nullopt;
}

bool Launcher::lives() const {
  const Description now = Describe(process_);
  if (now.name.empty())
    return kill(process_, 0) == 0 || errno != ESRCH;  // unreadable, for example because no descriptor is free
  return now.started == started_ && now.state != "Z" && now.state != "X";
}

void TellLauncher(EndNote note, const std::string& text) {
  int file = -1;
  unsigned long long inode = 0;
  if (std::sscanf(LauncherNotes().c_str(), "%d:%llu", &file, &inode) != 2) return;
  struct stat found = {};  // if the pipe was closed in the meantime, its number may belong to another file
  if (fstat(file, &found) != 0 || !S_ISFIFO(found.st_mode) || found.st_ino != inode) return;
  const std::string message = static_cast<char>(note) + text.substr(0, kMaxNoteBytes) + '\0';
  [[maybe_unused]] const ssize_t written = write(file, message.data(), message.size());
}

}  // namespace smddp
