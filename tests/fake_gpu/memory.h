// Memory of the fake GPU. What users get are addresses that the host cannot touch: a program that reads a GPU's memory
// by itself ends with a signal, as it does with CUDA. The GPU's own work reaches the bytes under another address.
//
// New memory is filled with kPoison. Nothing is handed out twice: what was freed stays known, and whoever uses it is
// told. Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "core/status.h"

namespace smddp::fake {

constexpr unsigned char kPoison = 0xCB;

enum class Kind { kDevice, kPinned };

struct Block {
  Kind kind = Kind::kDevice;
  int device = 0;
  char* address = nullptr;  // as users see it
  char* data = nullptr;     // where the bytes are
  size_t bytes = 0;
  std::atomic<int> uses{0};  // pieces of work that have not run yet
  std::atomic<bool> freed{false};

  char* room = nullptr;  // what `address` lies in, with pages around it that nobody may touch
  size_t room_bytes = 0;
  char* inner = nullptr;  // the pages with the bytes; null for pinned memory

  std::string Words() const;  // "64 bytes of device 0, freed"
};

Result<void*> AllocateDevice(int device, size_t bytes);
Result<void*> AllocatePinned(int device, size_t bytes);
// Wait for the work that uses it. `call` is for the sentence when it is not the right way to give this memory back.
void Release(int device, void* memory, Kind kind, const char* call);

// The block that holds this address; null for memory of others. Ends the process when it was freed.
std::shared_ptr<Block> BlockOf(const void* memory);

// A range as work reaches it; keeps the memory from being freed.
class Span {
 public:
  Span() = default;
  Span(char* data, std::shared_ptr<Block> block) : data_(data), block_(std::move(block)) {
    if (block_ != nullptr) ++block_->uses;
  }
  Span(Span&& other) noexcept : data_(other.data_), block_(std::move(other.block_)) { other.data_ = nullptr; }
  Span& operator=(Span&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(block_, other.block_);
    return *this;
  }
  ~Span() {
    if (block_ != nullptr) --block_->uses;
  }
  char* data() const { return data_; }
  const Block* block() const { return block_.get(); }

 private:
  char* data_ = nullptr;
  std::shared_ptr<Block> block_;
};

// Ends the process when the range leaves the block in which it begins. Memory of others is taken as it is; with
// `by_kernel` it must be memory of `device` or pinned.
Span Touch(const void* memory, size_t bytes, const char* call);
Span TouchByKernel(int device, const void* memory, size_t bytes, const char* call);

}  // namespace smddp::fake
