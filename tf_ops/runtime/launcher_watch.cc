#include "runtime/launcher_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace smddp {
namespace {

// As the kernel has them: at most 15 characters.
constexpr const char* kLaunchers[] = {"mpirun", "mpiexec", "orterun",       "prterun",         "prte",
                                      "prted",  "orted",   "mpiexec.hydra", "hydra_pmi_proxy", "slurmstepd"};

struct Ancestor {
  int process = 0;  // 0: none
  int parent = 0;
  std::string name;
};

Ancestor Describe(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t open = text.find('('), close = text.rfind(") ");  // "12 (name) S 11 ..."
  if (open == std::string::npos || close == std::string::npos || text.size() < close + 5) return {};
  return {process, std::atoi(text.c_str() + close + 4), text.substr(open + 1, close - open - 1)};
}

// The nearest ancestor that is a launcher.
Ancestor FindLauncher() {
  for (int process = getppid(); process > 1;) {
    const Ancestor ancestor = Describe(process);
    if (std::find(std::begin(kLaunchers), std::end(kLaunchers), ancestor.name) != std::end(kLaunchers)) return ancestor;
    process = ancestor.parent;
  }
  return {};
}

}  // namespace

LauncherWatch::LauncherWatch(std::function<void(const std::string&)> on_gone) : on_gone_(std::move(on_gone)) {
  const Ancestor launcher = FindLauncher();
  if (launcher.process == 0) return;
  launcher_fd_ = static_cast<int>(syscall(SYS_pidfd_open, launcher.process, 0));
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (launcher_fd_ < 0 || stop_fd_ < 0) return;
  thread_ = std::thread([this, launcher] { Wait(launcher.process, launcher.name); });
}

LauncherWatch::~LauncherWatch() {
  const uint64_t one = 1;
  if (thread_.joinable() && write(stop_fd_, &one, sizeof(one)) == sizeof(one)) thread_.join();
  if (launcher_fd_ >= 0) close(launcher_fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

void LauncherWatch::Wait(int process, std::string name) {
  pollfd events[] = {{launcher_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (poll(events, 2, -1) < 0 || (events[0].revents | events[1].revents) == 0) {
  }
  if (events[1].revents != 0) return;
  on_gone_("The launcher of this job (" + name + ", process " + std::to_string(process) +
           ") has ended, so nobody ends its ranks or shows what they print. Start the job again.");
}

}  // namespace smddp
