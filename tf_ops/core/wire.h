// What ranks send each other, as bytes. The reader checks every length before use: data from another rank are never
// assumed to be well formed.
//
// Structs are encoded and decoded by a list of their fields. What is sent by itself has
//
//   SMDDP_FIELDS(a, b);          // in the order in which they travel
//   bool IsWellFormed() const;   // false for values that only a damaged or hostile message has
//
// and gets Encode and Decode here; what is a field of another struct needs only the first. A control message also has a
// kType, which is sent first. Decode reads the whole text; false: it is not well formed.
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

class FieldWriter {
 public:
  template <class... T>
  void operator()(const T&... fields) {
    (Put(fields), ...);
  }
  std::string Take() { return writer_.Take(); }

 private:
  template <class T>
  void Put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      writer_.Put(static_cast<uint8_t>(value));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      writer_.Put(value);
    } else {
      T::Visit(value, *this);
    }
  }
  void Put(const std::string& text) { writer_.PutText(text); }
  // One byte; the number of "none" is not that of any dtype.
  void Put(const std::optional<DType>& dtype) {
    writer_.Put(dtype ? static_cast<uint8_t>(*dtype) : uint8_t{kDTypeCount});
  }
  void Put(const Status& status) { (*this)(status.reason(), status.message()); }
  template <class A, class B>
  void Put(const std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class T>
  void Put(const std::vector<T>& values) {
    writer_.Put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  template <class Key, class Value>
  void Put(const std::map<Key, Value>& values) {
    writer_.Put(static_cast<uint32_t>(values.size()));
    for (const auto& each : values) Put(each);
  }

  WireWriter writer_;
};

class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : reader_(message) {}
  template <class... T>
  void operator()(T&... fields) {
    (Get(&fields), ...);
  }
  bool at_end() const { return reader_.at_end(); }

 private:
  template <class T>
  void Get(T* value) {
    if constexpr (std::is_same_v<T, bool>) {
      *value = reader_.GetBool();
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      *value = reader_.Get<T>();
    } else {
      T::Visit(*value, *this);
    }
  }
  void Get(std::string* text) { *text = reader_.GetText(); }
  // IsWellFormed refuses numbers that are not those of a dtype.
  void Get(std::optional<DType>* dtype) {
    const uint8_t number = reader_.Get<uint8_t>();
    *dtype = number == kDTypeCount ? std::nullopt : std::optional(static_cast<DType>(number));
  }
  void Get(Status* status) {
    const Reason reason = reader_.Get<Reason>();
    *status = Status(reason <= kLastReason ? reason : Reason::kInternal, reader_.GetText());
  }
  template <class A, class B>
  void Get(std::pair<A, B>* both) {
    (*this)(both->first, both->second);
  }
  template <class T>
  void Get(std::vector<T>* values) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      *values = reader_.GetList<T>();  // checks the count before it allocates
    } else {
      const uint32_t count = reader_.Get<uint32_t>();
      for (uint32_t i = 0; i < count && reader_.ok(); ++i) Get(&values->emplace_back());
    }
  }
  template <class Key, class Value>
  void Get(std::map<Key, Value>* values) {
    const uint32_t count = reader_.Get<uint32_t>();
    for (uint32_t i = 0; i < count && reader_.ok(); ++i) {
      Key key{};
      Get(&key);
      Get(&(*values)[key]);
    }
  }

  WireReader reader_;
};

template <class M, class = void>
constexpr bool kIsControlMessage = false;
template <class M>
constexpr bool kIsControlMessage<M, std::void_t<decltype(M::kType)>> = true;

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
  return fields.at_end() && message->IsWellFormed();
}

}  // namespace smddp
