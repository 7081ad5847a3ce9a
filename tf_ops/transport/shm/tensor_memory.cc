#include "transport/shm/tensor_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace smddp {
namespace {

struct File {
  int descriptor = -1;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
};

Status Failed(const std::string& what) { return Status(Reason::kNoResources, what, ": ", std::strerror(errno)); }

}  // namespace

TensorMemoryAddress AddressOf(const TensorMemory& mine) {
  struct stat found = {};
  if (mine.memory.size == 0 || fstat(mine.file, &found) != 0) return {};
  return {static_cast<int64_t>(mine.memory.size), getpid(), mine.file, static_cast<int64_t>(found.st_dev),
          static_cast<int64_t>(found.st_ino)};
}

Result<std::shared_ptr<std::byte>> MapTensors(const TensorMemoryAddress& address) {
  if (address.bytes <= 0) return Status(Reason::kNoResources, "its tensors lie in ordinary memory");
  const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.file);
  const File file = {open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.descriptor < 0) return Failed("opening " + path);
  // Where processes are numbered anew (containers), this may be another file. One that can shrink could end this
  // process with SIGBUS.
  struct stat found = {};
  const bool same = fstat(file.descriptor, &found) == 0 && static_cast<int64_t>(found.st_dev) == address.device &&
                    static_cast<int64_t>(found.st_ino) == address.inode && found.st_size >= address.bytes;
  const int seals = fcntl(file.descriptor, F_GET_SEALS);
  if (!same || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(Reason::kNoResources, path, " is not the memory of its tensors: do the ranks share a PID namespace?");
  }
  const auto bytes = static_cast<size_t>(address.bytes);
  void* const at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.descriptor, 0);
  if (at == MAP_FAILED) return Failed(Concat("mapping ", bytes, " bytes"));
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(at), [bytes](std::byte* mapped) { munmap(mapped, bytes); });
}

}  // namespace smddp
