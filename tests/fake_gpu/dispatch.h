// From element types as values to C++ types.
#pragma once

#include "cuda/kernels/elements.h"
#include "cuda/kernels/job_tables.h"

namespace smddp {
namespace {

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls call(TypeTag<...>()) for a floating element.
template <class Call>
auto WithFloating(Element element, Call call) {
  switch (element) {
    case Element::kHalf:
      return call(TypeTag<Half>());
    case Element::kBFloat16:
      return call(TypeTag<BFloat16>());
    case Element::kFloat:
      return call(TypeTag<float>());
    default:
      return call(TypeTag<double>());
  }
}

// Calls call(to, from) for the pairs that PlanPack and PlanUnpack accept.
template <class Call>
auto WithPair(Element to, Element from, Call call) {
  switch (to) {
    case Element::kBytes1:
      return call(TypeTag<uint8_t>(), TypeTag<uint8_t>());
    case Element::kBytes2:
      return call(TypeTag<uint16_t>(), TypeTag<uint16_t>());
    case Element::kBytes4:
      return call(TypeTag<uint32_t>(), TypeTag<uint32_t>());
    case Element::kBytes8:
      return call(TypeTag<uint64_t>(), TypeTag<uint64_t>());
    default:
      return WithFloating(
          to, [&](auto to_tag) { return WithFloating(from, [&](auto from_tag) { return call(to_tag, from_tag); }); });
  }
}

}  // namespace
}  // namespace smddp
