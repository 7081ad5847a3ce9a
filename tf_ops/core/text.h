// Texts made of several parts.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace smddp {

// The parts one after another: texts as they are, numbers as std::to_string has them.
template <class... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  const auto add = [&text](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += std::string_view(part);
    }
  };
  (add(parts), ...);
  return text;
}

// "0, 2": the parts with commas between them.
template <class Parts>
std::string Listed(const Parts& parts) {
  std::string text;
  for (const auto& part : parts) text += Concat(text.empty() ? "" : ", ", part);
  return text;
}

}  // namespace smddp
