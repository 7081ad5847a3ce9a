#include "transport/shm/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "core/env/env.h"

namespace smddp {
namespace {

constexpr const char* kFolder = "/dev/shm";
// A name without a lock that is younger may belong to a process that is about to lock it.
constexpr time_t kStaleSeconds = 60;

std::string Prefix() { return "smddp-" + std::to_string(geteuid()) + "-"; }

std::string Hex(size_t value) {
  char text[9];
  snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(value));
  return text;
}

// Unique among the jobs of a host: made of user, boot, job, process, a counter, and a random number.
std::string NewName() {
  static std::atomic<int> counter{0};
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::random_device random;
  return "/" + Prefix() + boot.substr(0, 8) + "-" + Hex(std::hash<std::string>()(LauncherJob())) + "-" +
         std::to_string(getpid()) + "-" + std::to_string(counter++) + "-" + Hex(random());
}

Status Failed(const std::string& what, const std::string& name, size_t bytes) {
  return Status(Reason::kNoResources, what, " of ", bytes, " bytes of shared memory (", name,
                ") failed: ", std::strerror(errno),
                ". Make /dev/shm larger (docker run --shm-size, a Kubernetes emptyDir of medium Memory), set a smaller "
                "SMDDP_CHUNK_BYTES, or, when ranks of one host cannot share memory, give each its own SMDDP_HOST_ID.");
}

Result<std::byte*> Map(int fd, size_t bytes, const std::string& name) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) return Failed("Mapping", name, bytes);
  return static_cast<std::byte*>(at);
}

struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool TakeLock(int file) {
  struct flock lock = WholeFile();
  return fcntl(file, F_SETLK, &lock) == 0;
}

// Also true when the kernel does not report it.
bool IsLocked(int file) {
  struct flock lock = WholeFile();
  return fcntl(file, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool IsStale(int folder, const char* name) {
  struct stat found = {};
  if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode)) return false;
  if (found.st_uid != geteuid() || time(nullptr) - found.st_mtime < kStaleSeconds) return false;
  const int file = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return false;
  const bool stale = !IsLocked(file);
  close(file);
  return stale;
}

}  // namespace

Result<std::unique_ptr<Segment>> Segment::Create(size_t bytes) {
  auto segment = std::make_unique<Segment>();
  segment->name_ = NewName();
  segment->file_ = shm_open(segment->name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (segment->file_ < 0) return Failed("Creation", segment->name_, bytes);
  segment->linked_ = true;
  if (!TakeLock(segment->file_)) return Failed("Locking", segment->name_, bytes);
  // fallocate, not ftruncate: a full /dev/shm must be an error here, not a SIGBUS on the first write.
  const int error = posix_fallocate(segment->file_, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    errno = error;
    return Failed("Allocation", segment->name_, bytes);
  }
  SMDDP_ASSIGN_OR_RETURN(segment->data_, Map(segment->file_, bytes, segment->name_));
  segment->size_ = bytes;
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::Open(const std::string& name, size_t bytes) {
  auto segment = std::make_unique<Segment>();
  segment->name_ = name;
  segment->mine_ = false;
  segment->file_ = shm_open(name.c_str(), O_RDWR, 0600);
  if (segment->file_ < 0) return Failed("Opening", name, bytes);
  struct stat found = {};
  if (fstat(segment->file_, &found) != 0 || found.st_size < static_cast<off_t>(bytes)) {
    return Status(Reason::kBadState, "Expected ", bytes, " bytes of shared memory in ", name, ", it has ",
                  found.st_size, ".");
  }
  SMDDP_ASSIGN_OR_RETURN(segment->data_, Map(segment->file_, bytes, name));
  segment->size_ = bytes;
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::Private(size_t bytes) {
  auto segment = std::make_unique<Segment>();
  SMDDP_ASSIGN_OR_RETURN(segment->data_, Map(-1, bytes, "private"));
  segment->size_ = bytes;
  return segment;
}

void Segment::RemoveStale() {
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return;
  const std::string prefix = Prefix(), mine = "-" + std::to_string(getpid()) + "-";
  while (const dirent* entry = readdir(folder)) {
    // Closing a file of this process would release its lock.
    const bool candidate = std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0 &&
                           std::strstr(entry->d_name, mine.c_str()) == nullptr;
    if (candidate && IsStale(dirfd(folder), entry->d_name)) unlinkat(dirfd(folder), entry->d_name, 0);
  }
  closedir(folder);
}

Segment::~Segment() {
  Unlink();
  if (data_ != nullptr) munmap(data_, size_);
  if (file_ >= 0) close(file_);
}

void Segment::Unlink() {
  if (linked_) shm_unlink(name_.c_str());
  linked_ = false;
}

bool Segment::OwnerLives() const { return mine_ || IsLocked(file_); }

}  // namespace smddp
