#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

namespace smddp::fake {
namespace {

int64_t Number(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::atoll(value) : otherwise;
}

std::string Text(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Book {
  std::mutex mutex;
  Settings settings;
  bool read = false;
  std::map<std::string, int64_t> fail;  // kind: calls until the one that fails
  std::map<std::string, int64_t> calls, counts;

  void ReadAll() {
    settings.devices = static_cast<int>(Number("FAKE_GPU_DEVICES", 1));
    settings.slices = Text("FAKE_GPU_SHARED") == "slices";
    settings.shared = !settings.slices && Number("FAKE_GPU_SHARED", 1) != 0;
    settings.memory = static_cast<size_t>(Number("FAKE_GPU_MEMORY", int64_t{1} << 30));
    settings.delay_us = Number("FAKE_GPU_DELAY_US", 0);
    settings.seed = static_cast<uint64_t>(Number("FAKE_GPU_SEED", 1));
    settings.pageable_waits = Text("FAKE_GPU_PAGEABLE") != "later";
    settings.sync = Number("FAKE_GPU_SYNC", 0) != 0;
    settings.queues = static_cast<int>(Number("FAKE_GPU_QUEUES", 0));
    fail.clear();
    std::istringstream all(Text("FAKE_GPU_FAIL"));
    for (std::string one; std::getline(all, one, ',');) {
      const size_t colon = one.find(':');
      if (colon == std::string::npos) Fatal("FAKE_GPU_FAIL expects kind:n. Received: " + one + ".");
      fail[one.substr(0, colon)] = std::atoll(one.c_str() + colon + 1);
    }
    read = true;
  }
};

// Never destroyed: threads of streams may outlive main.
Book& TheBook() {
  static Book* const book = new Book;
  return *book;
}

}  // namespace

Settings Read() {
  Book& book = TheBook();
  const std::lock_guard<std::mutex> lock(book.mutex);
  if (!book.read) book.ReadAll();
  return book.settings;
}

void Reload() {
  Book& book = TheBook();
  const std::lock_guard<std::mutex> lock(book.mutex);
  book.ReadAll();
}

Status Call(const std::string& kind, bool memory_lacks) {
  Read();
  Book& book = TheBook();
  const std::lock_guard<std::mutex> lock(book.mutex);
  ++book.calls[kind];
  const auto found = book.fail.find(kind);
  if (found == book.fail.end() || --found->second != 0) return Status::Ok();
  return Status(memory_lacks ? Reason::kNoResources : Reason::kInternal,
                "fake GPU: " + kind + " fails, as FAKE_GPU_FAIL says.");
}

int64_t Calls(const std::string& kind) {
  Book& book = TheBook();
  const std::lock_guard<std::mutex> lock(book.mutex);
  const auto found = book.calls.find(kind);
  return found == book.calls.end() ? -1 : found->second;
}

void Add(const std::string& what, int64_t amount) {
  Book& book = TheBook();
  const std::lock_guard<std::mutex> lock(book.mutex);
  book.counts[what] += amount;
}

int64_t CountOf(const std::string& what) {
  Book& book = TheBook();
  const std::lock_guard<std::mutex> lock(book.mutex);
  const auto found = book.counts.find(what);
  return found == book.counts.end() ? 0 : found->second;
}

void Fatal(const std::string& sentence) {
  std::fprintf(stderr, "fake GPU: %s\n", sentence.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace smddp::fake
