#include "core/process/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace smddp {

int OpenPlainFile(const std::string& path, int flags, mode_t mode, std::string* why) {
  const int file = open(path.c_str(), flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
  if (file < 0) {
    *why = errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
    return -1;
  }
  struct stat found = {};
  if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1) return file;
  *why = "it is not a plain file, or has a second name";
  close(file);
  return -1;
}

}  // namespace smddp
