// Encodes and decodes messages from a list of fields. A message type has
//
//   static constexpr ControlType kType;
//   template <class Self, class Fields> static void Visit(Self& self, Fields& fields) { fields(self.a, self.b); }
//   bool IsWellFormed() const;   // false for values that only a damaged or hostile message has
//
// and gets Encode and Decode here. Decode reads the whole message; false: it is not well formed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/wire.h"

namespace smddp {

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
  void Put(const WireDType& wire) { writer_.Put(wire ? static_cast<uint8_t>(*wire) : uint8_t{kDTypeCount}); }
  void Put(const Status& status) { (*this)(status.reason(), status.message()); }
  template <class T>
  void Put(const std::vector<T>& values) {
    writer_.Put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  template <class Key, class Value>
  void Put(const std::map<Key, Value>& values) {
    writer_.Put(static_cast<uint32_t>(values.size()));
    for (const auto& [key, value] : values) (*this)(key, value);
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
  void Get(WireDType* wire) {
    const uint8_t number = reader_.Get<uint8_t>();
    *wire = number == kDTypeCount ? WireDType() : WireDType(static_cast<DType>(number));
  }
  void Get(Status* status) {
    const Reason reason = reader_.Get<Reason>();
    *status = Status(reason <= kLastReason ? reason : Reason::kInternal, reader_.GetText());
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

template <class M>
std::string Encode(const M& message) {
  FieldWriter fields;
  fields(M::kType);
  M::Visit(message, fields);
  return fields.Take();
}

template <class M>
bool Decode(std::string_view bytes, M* message) {
  FieldReader fields(bytes);
  auto type = M::kType;
  fields(type);
  if (type != M::kType) return false;
  M::Visit(*message, fields);
  return fields.at_end() && message->IsWellFormed();
}

}  // namespace smddp
