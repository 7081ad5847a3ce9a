#include "memory.h"

#include <signal.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "settings.h"

namespace smddp::fake {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
constexpr auto kPatience = std::chrono::seconds(60);

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }
std::string Hex(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", pointer);
  return text;
}

struct Registry {
  std::mutex mutex;
  std::map<const char*, std::shared_ptr<Block>> blocks;  // by where their room begins; freed ones too
  std::map<int, size_t> in_use;                          // bytes by device
  struct sigaction before = {};
};
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

// The block in whose room the address lies, with the registry locked.
std::shared_ptr<Block> Find(Registry& registry, const void* memory) {
  const char* const at = static_cast<const char*>(memory);
  auto found = registry.blocks.upper_bound(at);
  if (found == registry.blocks.begin()) return nullptr;
  const std::shared_ptr<Block>& block = (--found)->second;
  return at < block->room + block->room_bytes ? block : nullptr;
}

// Says what was touched, then lets the signal do what it did before.
void OnFault(int signal, siginfo_t* info, void*) {
  Registry& registry = TheRegistry();
  if (registry.mutex.try_lock()) {
    if (const std::shared_ptr<Block> block = Find(registry, info->si_addr)) {
      std::fprintf(stderr, "fake GPU: the host touched %p, %s.\n", info->si_addr, block->Words().c_str());
    }
    registry.mutex.unlock();
  }
  sigaction(signal, &registry.before, nullptr);
}

void CatchFaults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &TheRegistry().before);
  });
}

Status Lacking(const char* what) {
  return Status(Reason::kNoResources, std::string("fake GPU: ") + what + ": " + std::strerror(errno) + ".");
}

// Pages that nobody may touch, with place for `bytes` so that they end at one.
Status MakeRoom(Block& block) {
  const size_t inner = RoundUp(std::max(block.bytes, size_t{1}), kPage);
  block.room_bytes = inner + 2 * kPage;
  void* const room = mmap(nullptr, block.room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return Lacking("mmap");
  block.room = static_cast<char*>(room);
  block.address = block.room + kPage + inner - RoundUp(std::max(block.bytes, size_t{1}), kAlignment);
  return Status::Ok();
}

void Register(std::shared_ptr<Block> block) {
  CatchFaults();
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.blocks[block->room] = std::move(block);
}

const char* const kAlive[] = {"allocations", "pinned"};
const char* const kAliveBytes[] = {"allocated_bytes", "pinned_bytes"};
void Count(const Block& block, int sign) {
  Add(kAlive[static_cast<int>(block.kind)], sign);
  Add(kAliveBytes[static_cast<int>(block.kind)], sign * static_cast<int64_t>(block.bytes));
}

// Ends the process if something was written in the last, partial line behind the block.
void CheckEnd(const Block& block) {
  const size_t whole = RoundUp(std::max(block.bytes, size_t{1}), kAlignment);
  for (size_t i = block.bytes; i < whole; ++i) {
    if (static_cast<unsigned char>(block.data[i]) != kPoison) {
      Fatal("Something wrote " + std::to_string(i - block.bytes + 1) + " bytes behind the end of " + block.Words() +
            ".");
    }
  }
}

void WaitForUses(const Block& block, const char* call) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (block.uses.load() != 0) {
    if (std::chrono::steady_clock::now() > end) {
      Fatal(std::string(call) + " has waited for a minute for work that uses " + block.Words() + ".");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void GiveBack(Block& block) {
  if (block.inner != nullptr) munmap(block.inner, block.room_bytes - 2 * kPage);
  // The address stays taken, so that whoever still uses it is found.
  if (block.kind == Kind::kPinned) {
    mmap(block.room, block.room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
}

}  // namespace

std::string Block::Words() const {
  const char* const what[] = {" bytes of memory", " bytes of pinned memory"};
  return std::to_string(bytes) + what[static_cast<int>(kind)] + " of device " + std::to_string(device) + " at " +
         Hex(address) + (freed ? ", freed" : "");
}

Result<void*> AllocateDevice(int device, size_t bytes) {
  SMDDP_RETURN_IF_ERROR(Call("allocate", true));
  Registry& registry = TheRegistry();
  {
    const std::lock_guard<std::mutex> lock(registry.mutex);
    size_t& in_use = registry.in_use[device];
    const size_t limit = Read().memory;
    if (bytes > limit - std::min(limit, in_use)) {
      return Status(Reason::kNoResources, "fake GPU: out of memory: " + std::to_string(bytes) + " bytes wanted, " +
                                              std::to_string(in_use) + " of " + std::to_string(limit) + " in use.");
    }
    in_use += bytes;
  }
  auto block = std::make_shared<Block>();
  block->device = device;
  block->bytes = bytes;
  SMDDP_RETURN_IF_ERROR(MakeRoom(*block));
  const size_t inner = block->room_bytes - 2 * kPage;
  void* const memory = mmap(nullptr, inner, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Lacking("mmap");
  block->inner = static_cast<char*>(memory);
  block->data = block->inner + (block->address - block->room) - kPage;
  std::memset(block->inner, kPoison, inner);
  Count(*block, 1);
  void* const address = block->address;
  Register(std::move(block));
  return address;
}

Result<void*> AllocatePinned(int device, size_t bytes) {
  SMDDP_RETURN_IF_ERROR(Call("pin", true));
  auto block = std::make_shared<Block>();
  block->kind = Kind::kPinned;
  block->device = device;
  block->bytes = bytes;
  SMDDP_RETURN_IF_ERROR(MakeRoom(*block));
  const size_t inner = block->room_bytes - 2 * kPage;
  if (mprotect(block->room + kPage, inner, PROT_READ | PROT_WRITE) != 0) return Lacking("mprotect");
  std::memset(block->room + kPage, kPoison, inner);
  block->data = block->address;
  Count(*block, 1);
  void* const address = block->address;
  Register(std::move(block));
  return address;
}

void Release(int device, void* memory, Kind kind, const char* call) {
  const std::shared_ptr<Block> block = BlockOf(memory);
  if (block == nullptr) Fatal(std::string(call) + " of " + Hex(memory) + ", which is not the fake GPU's.");
  if (block->kind != kind || block->address != memory || block->device != device) {
    Fatal(std::string(call) + " at device " + std::to_string(device) + " of " + Hex(memory) + ", which lies in " +
          block->Words() + ".");
  }
  WaitForUses(*block, call);
  if (block->freed.exchange(true)) Fatal(std::string(call) + " twice of " + block->Words() + ".");
  CheckEnd(*block);
  Count(*block, -1);
  GiveBack(*block);
  if (kind != Kind::kDevice) return;
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.in_use[device] -= block->bytes;
}

std::shared_ptr<Block> BlockOf(const void* memory) {
  Registry& registry = TheRegistry();
  std::shared_ptr<Block> block;
  {
    const std::lock_guard<std::mutex> lock(registry.mutex);
    block = Find(registry, memory);
  }
  if (block != nullptr && block->freed) Fatal("A call got " + Hex(memory) + ", which is in " + block->Words() + ".");
  return block;
}

Span Touch(const void* memory, size_t bytes, const char* call) {
  std::shared_ptr<Block> block = BlockOf(memory);
  char* const at = const_cast<char*>(static_cast<const char*>(memory));
  if (block == nullptr) return Span(at, nullptr);
  if (at < block->address || at + bytes > block->address + block->bytes) {
    Fatal(std::string(call) + " of " + std::to_string(bytes) + " bytes at " + Hex(memory) + " leaves " +
          block->Words() + ".");
  }
  char* const data = block->data + (at - block->address);
  return Span(data, std::move(block));
}

Span TouchByKernel(int device, const void* memory, size_t bytes, const char* call) {
  Span span = Touch(memory, bytes, call);
  if (bytes == 0) return span;
  if (span.block() == nullptr) Fatal(std::string(call) + " got host memory, " + Hex(memory) + ".");
  if (span.block()->kind != Kind::kPinned && span.block()->device != device) {
    Fatal(std::string(call) + " at device " + std::to_string(device) + " got " + span.block()->Words() + ".");
  }
  return span;
}

}  // namespace smddp::fake
