// Writing and reading small control messages. The reader checks every length before use: data from another rank are
// never assumed to be well formed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace smddp {

class WireWriter {
 public:
  template <class T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutText(std::string_view text) {
    Put<uint32_t>(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  template <class T>
  void PutList(const std::vector<T>& values) {
    Put<uint32_t>(static_cast<uint32_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After a failed read `ok()` is false and all further reads return zero values.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    // Not every bit pattern is a valid bool or pointer; read a number and check it.
    static_assert(!std::is_same_v<T, bool> && !std::is_pointer_v<T>);
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  bool GetBool() { return Get<uint8_t>() != 0; }
  std::string GetText() {
    const uint32_t length = Get<uint32_t>();
    if (!Has(length)) return {};
    std::string text(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return text;
  }
  template <class T>
  std::vector<T> GetList() {
    const uint32_t count = Get<uint32_t>();
    std::vector<T> values;
    if (!Has(uint64_t{count} * sizeof(T))) return values;
    values.reserve(count);
    for (uint32_t i = 0; i < count; ++i) values.push_back(Get<T>());
    return values;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  bool Has(uint64_t bytes) {
    if (bytes > rest_.size()) ok_ = false;
    return ok_;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace smddp
