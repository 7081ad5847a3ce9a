#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>

namespace smddp {
namespace {

std::string NewName() {
  static std::atomic<int> counter{0};
  std::random_device random;
  return "/smddp-" + std::to_string(geteuid()) + "-" + std::to_string(getpid()) + "-" + std::to_string(counter++) +
         "-" + std::to_string(random());
}

Status Failed(const std::string& what, const std::string& name, size_t bytes) {
  return Status(Code::kResourceExhausted,
                what + " of " + std::to_string(bytes) + " bytes of shared memory (" + name +
                    ") failed: " + std::strerror(errno) +
                    ". Make /dev/shm larger (docker run --shm-size, a Kubernetes emptyDir of "
                    "medium Memory), set a smaller SMDDP_CHUNK_BYTES, or, when ranks of one host cannot share memory, "
                    "give each its own SMDDP_HOST_ID.");
}

Result<std::byte*> Map(int fd, size_t bytes, const std::string& name) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) return Failed("Mapping", name, bytes);
  return static_cast<std::byte*>(at);
}

}  // namespace

Result<Segment> Segment::Create(size_t bytes) {
  Segment segment;
  segment.name_ = NewName();
  const int fd = shm_open(segment.name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (fd < 0) return Failed("Creation", segment.name_, bytes);
  segment.linked_ = true;
  // fallocate, not ftruncate: a full /dev/shm must be an error here, not a SIGBUS at the first write.
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  Result<std::byte*> at = Status(Code::kInternal, "");
  if (error == 0) {
    at = Map(fd, bytes, segment.name_);
  } else {
    errno = error;
    at = Failed("Allocation", segment.name_, bytes);
  }
  close(fd);
  if (!at.ok()) return at.status();
  segment.data_ = *at;
  segment.size_ = bytes;
  return segment;
}

Result<Segment> Segment::Open(const std::string& name, size_t bytes) {
  const int fd = shm_open(name.c_str(), O_RDWR, 0600);
  if (fd < 0) return Failed("Opening", name, bytes);
  auto at = Map(fd, bytes, name);
  close(fd);
  if (!at.ok()) return at.status();
  Segment segment;
  segment.name_ = name;
  segment.data_ = *at;
  segment.size_ = bytes;
  return segment;
}

Result<Segment> Segment::Private(size_t bytes) {
  SMDDP_ASSIGN_OR_RETURN(std::byte * at, Map(-1, bytes, "private"));
  Segment segment;
  segment.data_ = at;
  segment.size_ = bytes;
  return segment;
}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  std::swap(linked_, other.linked_);
  return *this;
}

Segment::~Segment() {
  Unlink();
  if (data_ != nullptr) munmap(data_, size_);
}

void Segment::Unlink() {
  if (linked_) shm_unlink(name_.c_str());
  linked_ = false;
}

}  // namespace smddp
