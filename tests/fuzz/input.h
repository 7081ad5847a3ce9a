// What a fuzzer gives, cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace fuzz {

// Past the end all is zero.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  template <class T>
  T Take() {
    static_assert(std::is_integral_v<T>);
    T value = 0;
    const size_t bytes = std::min(sizeof(T), rest_.size());
    std::memcpy(&value, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return value;
  }
  // As long as the two bytes before it say.
  std::string TakeText() {
    const size_t bytes = std::min<size_t>(Take<uint16_t>(), rest_.size());
    std::string text(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return text;
  }
  std::string_view Rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace fuzz
