#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "core/env/launcher.h"
#include "native/testing.h"

namespace smddp {
namespace {

// What the grandchild of a process of this name answers; -1: it did not end by itself.
template <class Body>
int BelowProcess(const char* name, Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, name);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(body(getppid()));
    int status = 0;
    waitpid(grandchild, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("the launcher is the nearest ancestor with the name of one") {
  for (const char* name : {"prted", "hydra_pmi_proxy", "slurmstepd"}) {
    CAPTURE(name);
    CHECK(BelowProcess(name, [](pid_t parent) {
            const std::optional<Launcher> launcher = Launcher::Find();
            return !launcher || launcher->process() != parent ? 1 : launcher->lives() ? 0 : 2;
          }) == 0);
  }
  CHECK(BelowProcess("another", [](pid_t parent) {
          const std::optional<Launcher> launcher = Launcher::Find();
          return launcher && launcher->process() == parent;
        }) == 0);
}

void Tell(int file, char byte) { (void)!write(file, &byte, 1); }
char Heard(int file) {
  char byte = '?';
  (void)!read(file, &byte, 1);
  return byte;
}

TEST_CASE("a launcher that has ended does not live, also while nobody has waited for it") {
  int to_launcher[2], to_rank[2], answers[2];
  REQUIRE(pipe(to_launcher) + pipe(to_rank) + pipe(answers) == 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    prctl(PR_SET_NAME, "prterun");
    if (fork() == 0) {
      const std::optional<Launcher> found = Launcher::Find();
      Tell(answers[1], found && found->lives() ? 'y' : 'n');
      Heard(to_rank[0]);
      Tell(answers[1], found && found->lives() ? 'y' : 'n');
      Heard(to_rank[0]);
      Tell(answers[1], found && found->lives() ? 'y' : 'n');
      _exit(0);
    }
    Heard(to_launcher[0]);
    _exit(0);
  }
  CHECK(Heard(answers[0]) == 'y');
  Tell(to_launcher[1], 'x');
  siginfo_t info = {};
  REQUIRE(waitid(P_PID, launcher, &info, WEXITED | WNOWAIT) == 0);  // a zombie from here on
  Tell(to_rank[1], 'x');
  CHECK(Heard(answers[0]) == 'n');
  REQUIRE(waitpid(launcher, nullptr, 0) == launcher);
  Tell(to_rank[1], 'x');
  CHECK(Heard(answers[0]) == 'n');
  for (const int* ends : {to_launcher, to_rank, answers}) {
    close(ends[0]);
    close(ends[1]);
  }
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { REQUIRE(pipe(ends) == 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
    unsetenv("SMDDP_RUN_NOTES");
  }
  void Announce(int file, unsigned long long more_inode = 0) const {
    struct stat found = {};
    REQUIRE(fstat(file, &found) == 0);
    const std::string value = std::to_string(file) + ":" + std::to_string(found.st_ino + more_inode);
    setenv("SMDDP_RUN_NOTES", value.c_str(), 1);
  }
  std::string Read() const {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    char text[8192] = {};
    const ssize_t length = read(ends[0], text, sizeof(text));
    return length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
  }
};

TEST_CASE("the launcher is told why a rank ends") {
  const Pipe notes;
  notes.Announce(notes.ends[1]);
  TellLauncher(EndNote::kBecauseOfLost, "Rank 3 has died.");
  CHECK(notes.Read() == std::string("LRank 3 has died.\0", 18));
  TellLauncher(EndNote::kRaised, std::string(10'000, 'x'));
  CHECK(notes.Read() == "R" + std::string(3500, 'x') + std::string(1, '\0'));  // as a whole or not at all
}

TEST_CASE("a file that has taken the number of the launcher's pipe is left alone") {
  const Pipe notes;
  notes.Announce(notes.ends[1], 1);
  TellLauncher(EndNote::kRaised, "text");
  CHECK(notes.Read().empty());
  setenv("SMDDP_RUN_NOTES", "nonsense", 1);
  TellLauncher(EndNote::kRaised, "text");
  unsetenv("SMDDP_RUN_NOTES");
  TellLauncher(EndNote::kRaised, "text");
  CHECK(notes.Read().empty());
}

}  // namespace
}  // namespace smddp
