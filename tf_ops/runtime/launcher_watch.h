// Notices that the launcher has died, which leaves its ranks without anybody to end them or to show what they print.
//
// Open MPI ends the ranks of a daemon that has lost mpirun, but not those of mpirun's own host; srun's and hydra's
// daemons do it themselves. Threads: one of its own, which sleeps in the kernel until the launcher ends.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace smddp {

class LauncherWatch {
 public:
  // `on_gone` is called once, on the watch's thread, with a sentence. Without a launcher, or where the kernel is too
  // old to tell (before Linux 5.3), nothing is watched.
  explicit LauncherWatch(std::function<void(const std::string&)> on_gone);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  void Wait(int process, std::string name);

  std::function<void(const std::string&)> on_gone_;
  int launcher_fd_ = -1, stop_fd_ = -1;
  std::thread thread_;  // last: it uses the others
};

}  // namespace smddp
