// The memory of shared tensors: blocks, what is given back, forks, limits.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "native/testing.h"
#include "ops/allocator/shared_arena.h"

namespace smddp::ops {
namespace {

constexpr size_t kMib = 1 << 20, kAlignment = SharedArena::kAlignment, kApart = 320;
double g_seconds = 0;  // the clock of these tests

// Blocks by their offset in the arena; -1: no room.
class Arena {
 public:
  explicit Arena(size_t capacity) : arena_(SharedArena::Create(capacity, [] { return g_seconds; })) {
    REQUIRE(arena_ != nullptr);
  }
  int64_t Allocate(size_t bytes) {
    const auto* block = static_cast<std::byte*>(arena_->Allocate(bytes));
    return block == nullptr ? -1 : block - arena_->data();
  }
  void Free(int64_t offset) { arena_->Free(arena_->data() + offset); }
  void Fill(int64_t offset, size_t bytes, int value) { std::memset(arena_->data() + offset, value, bytes); }
  bool Holds(int64_t offset, size_t bytes, int value) const {
    const std::byte* begin = arena_->data() + offset;
    return std::all_of(begin, begin + bytes, [value](std::byte each) { return each == std::byte(value); });
  }
  SharedArena* operator->() { return arena_.get(); }

 private:
  const std::unique_ptr<SharedArena> arena_;
};

struct Block {
  int64_t offset;
  size_t bytes;
  int value;
};

TEST_CASE("arena: blocks do not overlap and become one again") {
  ForSeeds(40, [](Chance& chance) {
    Arena arena(8 * kMib);
    std::vector<Block> alive;  // by offset
    for (int64_t step = 0, steps = chance.From(1, 80); step < steps; ++step) {
      const auto bytes = static_cast<size_t>(chance.From(1, 300'000));
      const Block block = {arena.Allocate(bytes), bytes, static_cast<int>(step % 251)};
      if (block.offset >= 0) {
        const auto end = block.offset + static_cast<int64_t>(bytes);
        CHECK(block.offset % static_cast<int64_t>(kAlignment) == 0);
        CHECK(end <= static_cast<int64_t>(arena->capacity()));
        for (const Block& other : alive) {
          CHECK((end <= other.offset || other.offset + static_cast<int64_t>(other.bytes) <= block.offset));
        }
        alive.push_back(block);
        arena.Fill(block.offset, bytes, block.value);
      }
      if (chance.Below(2) == 0 && !alive.empty()) {
        const auto at = alive.begin() + chance.Below(static_cast<int64_t>(alive.size()));
        CHECK(arena.Holds(at->offset, at->bytes, at->value));
        arena.Free(at->offset);
        alive.erase(at);
      }
    }
    for (const Block& block : alive) {
      CHECK(arena.Holds(block.offset, block.bytes, block.value));
      arena.Free(block.offset);
    }
    CHECK(arena.Allocate(arena->capacity() - kApart) == 0);  // the free ranges have become one
  });
}

TEST_CASE("arena: the smallest range that fits is taken") {
  Arena arena(16 * kMib);
  std::vector<int64_t> blocks;
  for (const size_t bytes : {kMib, size_t{64}, 2 * kMib, size_t{64}}) blocks.push_back(arena.Allocate(bytes));
  arena.Free(blocks[0]);
  arena.Free(blocks[2]);
  CHECK(arena.Allocate(kMib - 1000) == blocks[0]);
  CHECK(arena.Allocate(kMib + 1000) == blocks[2]);
}

TEST_CASE("arena: a full one says so and goes on") {
  Arena arena(4 * kMib);
  CHECK(arena.Allocate(5 * kMib) == -1);
  CHECK(arena.Allocate(size_t{1} << 63) == -1);
  CHECK(arena.Allocate(3 * kMib) == 0);
  CHECK(arena.Allocate(2 * kMib) == -1);
  arena.Free(0);
  CHECK(arena.Allocate(2 * kMib) == 0);
}

TEST_CASE("arena: equal blocks begin at different places of a page") {
  Arena arena(64 * kMib);
  std::set<int64_t> places;
  for (int i = 0; i < 8; ++i) places.insert(arena.Allocate(kMib) % sysconf(_SC_PAGESIZE));
  CHECK(places.size() == 8);
}

TEST_CASE("arena: it knows its own blocks") {
  Arena arena(4 * kMib);
  const int64_t block = arena.Allocate(1000);
  CHECK(arena->Owns(arena->data() + block));
  CHECK_FALSE(arena->Owns(arena->data() + arena->capacity()));
  CHECK_FALSE(arena->Owns(&g_seconds));
}

TEST_CASE("arena: memory goes back once it is not needed any more") {
  // Steps that use 40 MiB keep it; two periods after a moment with 200 MiB, what only that needed is gone.
  g_seconds = 0;
  Arena arena(512 * kMib);
  const auto use = [&](size_t mib) {
    std::vector<int64_t> blocks;
    for (size_t i = 0; i < mib / 20; ++i) blocks.push_back(arena.Allocate(20 * kMib));
    for (const int64_t block : blocks) arena.Fill(block, 20 * kMib, 1);
    for (const int64_t block : blocks) arena.Free(block);
  };
  use(200);
  CHECK(arena->resident_bytes() >= 200 * kMib);
  for (int second = 1; second < 30; ++second) {
    CAPTURE(second);
    g_seconds = second;
    use(40);
    CHECK(arena->resident_bytes() >= 40 * kMib);
    if (second < 5) CHECK(arena->resident_bytes() >= 200 * kMib);
  }
  CHECK(arena->resident_bytes() <= 40 * kMib + 17 * kMib);
  const int64_t block = arena.Allocate(100 * kMib);
  arena.Fill(block, 100 * kMib, 3);
  CHECK(arena.Holds(block, 100 * kMib, 3));
}

TEST_CASE("arena: what goes back does not touch blocks beside it") {
  g_seconds = 0;
  constexpr size_t kBytes = 24 * kMib + 100;
  Arena arena(512 * kMib);
  std::vector<int64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(arena.Allocate(kBytes));
  for (int i = 0; i < 8; ++i) arena.Fill(blocks[i], kBytes, i + 1);
  for (int i = 0; i < 8; i += 2) arena.Free(blocks[i]);
  for (const int second : {6, 12, 18}) {
    g_seconds = second;
    arena.Free(arena.Allocate(64));
  }
  CHECK(arena->resident_bytes() < 5 * 25 * kMib);
  for (int i = 1; i < 8; i += 2) CHECK(arena.Holds(blocks[i], kBytes, i + 1));
}

TEST_CASE("arena: the file can be mapped read and not be shrunk") {
  Arena arena(kMib);
  const int64_t block = arena.Allocate(1000);
  arena.Fill(block, 1000, 9);
  const std::string path = "/proc/self/fd/" + std::to_string(arena->file());
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  void* const mapped = mmap(nullptr, kMib, PROT_READ, MAP_SHARED, file, 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK(std::memcmp(static_cast<std::byte*>(mapped) + block, arena->data() + block, 1000) == 0);
  munmap(mapped, kMib);
  CHECK(ftruncate(file, 4096) == -1);
  CHECK(errno == EPERM);
  close(file);
}

TEST_CASE("arena: a fork gets copies and no blocks") {
  // What the child writes does not reach the parent, what it frees stays used; it gets no memory of the arena.
  Arena arena(4 * kMib);
  const int64_t block = arena.Allocate(kMib);
  arena.Fill(block, kMib, 5);
  const pid_t child = fork();
  if (child == 0) {
    const bool as_before = arena.Holds(block, kMib, 5);
    arena.Fill(block, kMib, 6);
    arena.Free(block);
    _exit(as_before && arena.Allocate(1000) == -1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(arena.Holds(block, kMib, 5));
  CHECK(arena.Allocate(kMib) != block);
}

TEST_CASE("arena: a child reads what its parent has freed and used again since the fork") {
  Arena arena(8 * kMib);
  const int64_t read = arena.Allocate(kMib);
  arena.Fill(read, kMib, 5);
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipes[1]);
    char end;
    (void)!::read(pipes[0], &end, 1);
    _exit(arena.Holds(read, kMib, 5) ? 0 : 1);
  }
  arena.Free(read);
  for (int value = 10; value < 16; ++value) {  // no room for a seventh: the freed one is not used again
    const int64_t block = arena.Allocate(kMib);
    REQUIRE(block != -1);
    arena.Fill(block, kMib, value);
  }
  CHECK(arena.Allocate(kMib) == -1);
  close(pipes[1]);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

// What a process with that limit gets of 1 GiB: its capacity in MiB, 200 for none, 201 where a signal ended it.
int MibUnder(int limit, rlim_t value) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limits = {value, RLIM_INFINITY};
    setrlimit(static_cast<__rlimit_resource>(limit), &limits);
    const auto arena = SharedArena::Create(1 << 30, [] { return 0.0; });
    _exit(arena == nullptr ? 200 : static_cast<int>(arena->capacity() / kMib));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 201;
}

TEST_CASE("arena: limits of the process make it smaller or none, and raise no signal") {
  CHECK(MibUnder(RLIMIT_FSIZE, kMib) == 1);  // ulimit -f
  std::ifstream memory("/proc/self/statm");
  size_t pages = 0;
  memory >> pages;
  CHECK(MibUnder(RLIMIT_AS, pages * sysconf(_SC_PAGESIZE) + 64 * kMib) == 200);  // ulimit -v
}

}  // namespace
}  // namespace smddp::ops
