// What ranks send each other, as bytes. The reader checks every length before use: data from another rank are never
// assumed to be well formed.
//
// Structs are encoded and decoded by a list of their fields, and where not all values are possible by a check:
//
//   SMDDP_FIELDS(a, b);          // in the order in which they travel
//   bool IsWellFormed() const;   // false for values that only a damaged or hostile message has
//
// Decode asks the latter of what is sent by itself, not of its fields. A control message also has a kType, which is
// sent first. Decode reads the whole text; false: it is not well formed.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"

// Fields that depend on others: a static `Visit` instead, with a template parameter for the struct, const or not.
#define SMDDP_FIELDS(...)                         \
  template <class Fields>                         \
  void VisitAll(Fields& fields) {                 \
    fields(__VA_ARGS__);                          \
  }                                               \
  template <class Fields>                         \
  void VisitAll(Fields& fields) const {           \
    fields(__VA_ARGS__);                          \
  }                                               \
  template <class Self, class Fields>             \
  static void Visit(Self& self, Fields& fields) { \
    self.VisitAll(fields);                        \
  }                                               \
  static_assert(true, "a semicolon follows")

namespace smddp {

class FieldWriter {
 public:
  template <class... T>
  void operator()(const T&... fields) {
    (Put(fields), ...);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  template <class T>
  void Put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      Put(static_cast<uint8_t>(value));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    } else {
      T::Visit(value, *this);
    }
  }
  void Put(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  // One byte; the number of "none" is not that of any dtype.
  void Put(const std::optional<DType>& dtype) { Put(dtype ? static_cast<uint8_t>(*dtype) : uint8_t{kDTypeCount}); }
  void Put(const Status& status) { (*this)(status.reason(), status.message()); }
  template <class A, class B>
  void Put(const std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class T>
  void Put(const std::vector<T>& values) {
    Put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  template <class Key, class Value>
  void Put(const std::map<Key, Value>& values) {
    Put(static_cast<uint32_t>(values.size()));
    for (const auto& each : values) Put(each);
  }

  std::string bytes_;
};

// After a failed read all further reads return zero values.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}
  template <class... T>
  void operator()(T&... fields) {
    (Get(&fields), ...);
  }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  bool Has(uint64_t bytes) {
    if (bytes > rest_.size()) ok_ = false;
    return ok_;
  }
  template <class T>
  T Number() {
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  template <class T>
  void Get(T* value) {
    if constexpr (std::is_same_v<T, bool>) {
      *value = Number<uint8_t>() != 0;  // not every bit pattern is a valid bool
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      *value = Number<T>();
    } else {
      T::Visit(*value, *this);
    }
  }
  void Get(std::string* text) {
    const uint32_t length = Number<uint32_t>();
    if (!Has(length)) return text->clear();
    text->assign(rest_.substr(0, length));
    rest_.remove_prefix(length);
  }
  // IsWellFormed refuses numbers that are not those of a dtype.
  void Get(std::optional<DType>* dtype) {
    const uint8_t number = Number<uint8_t>();
    *dtype = number == kDTypeCount ? std::nullopt : std::optional(static_cast<DType>(number));
  }
  void Get(Status* status) {
    const auto reason = Number<Reason>();
    std::string message;
    Get(&message);
    *status = Status(reason <= kLastReason ? reason : Reason::kInternal, message);
  }
  template <class A, class B>
  void Get(std::pair<A, B>* both) {
    (*this)(both->first, both->second);
  }
  template <class T>
  void Get(std::vector<T>* values) {
    const uint32_t count = Number<uint32_t>();
    values->clear();
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      if (Has(uint64_t{count} * sizeof(T))) values->reserve(count);  // the count is checked before it allocates
    }
    for (uint32_t i = 0; i < count && ok_; ++i) Get(&values->emplace_back());
  }
  template <class Key, class Value>
  void Get(std::map<Key, Value>* values) {
    const uint32_t count = Number<uint32_t>();
    for (uint32_t i = 0; i < count && ok_; ++i) {
      Key key{};
      Get(&key);
      Get(&(*values)[key]);
    }
  }

  std::string_view rest_;
  bool ok_ = true;
};

template <class M, class = void>
constexpr bool kIsControlMessage = false;
template <class M>
constexpr bool kIsControlMessage<M, std::void_t<decltype(M::kType)>> = true;

template <class M, class = void>
constexpr bool kMayBeMalformed = false;
template <class M>
constexpr bool kMayBeMalformed<M, std::void_t<decltype(&M::IsWellFormed)>> = true;

template <class M>
std::string Encode(const M& message) {
  FieldWriter fields;
  if constexpr (kIsControlMessage<M>) fields(M::kType);
  M::Visit(message, fields);
  return fields.Take();
}

template <class M>
bool Decode(std::string_view bytes, M* message) {
  FieldReader fields(bytes);
  if constexpr (kIsControlMessage<M>) {
    auto type = M::kType;
    fields(type);
    if (type != M::kType) return false;
  }
  M::Visit(*message, fields);
  if constexpr (kMayBeMalformed<M>) return fields.at_end() && message->IsWellFormed();
  return fields.at_end();
}

}  // namespace smddp
