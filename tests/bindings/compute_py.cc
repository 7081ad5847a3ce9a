// Test access to compute/: each instruction set by name, on raw bytes (so that ml_dtypes arrays can come as uint8).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/bind.h"
#include "compute/compute.h"
#include "core/dtype.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void Refuse(const std::string& message) { throw nb::value_error(message.c_str()); }

std::vector<std::string> Isas() {
  std::vector<std::string> names;
  for (const char* name : {"generic", "avx2", "avx512"}) {
    if (std::string(CpuCompute(name).name()) == name) names.push_back(name);
  }
  return names;
}

const Compute& ComputeByName(const std::string& isa) {
  const Compute& compute = CpuCompute(isa.c_str());
  if (isa != "auto" && isa != compute.name()) Refuse("Expected an isa of compute_isas(). Received: " + isa + ".");
  return compute;
}

DType ParseDType(const std::string& name) {
  Result<DType> dtype = DTypeFromName(name);
  if (!dtype.ok()) Refuse(dtype.status().message());
  return *dtype;
}

ReduceOp ParseOp(int op) {
  for (ReduceOp known : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (op == static_cast<int>(known)) return known;
  }
  Refuse("Expected an op of 1 (Sum), 3 (Min), 4 (Max), 5 (Product). Received: " + std::to_string(op) + ".");
}

void CheckElements(int64_t elements) {
  if (elements < 0) Refuse("`elements` must not be negative. Received: " + std::to_string(elements) + ".");
}

// `bytes` must hold `elements` elements and be aligned for them.
void CheckArray(const char* what, const void* data, size_t bytes, DType dtype, int64_t elements) {
  const size_t size = SizeOf(dtype);
  if (bytes / size < static_cast<size_t>(elements)) {
    Refuse(std::string("`") + what + "` must hold " + std::to_string(elements) + " elements of " + NameOf(dtype) +
           ". Received: " + std::to_string(bytes) + " bytes.");
  }
  const size_t alignment = size < alignof(double) ? size : alignof(double);
  if (elements > 0 && reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    Refuse(std::string("`") + what + "` must be aligned to an element of " + NameOf(dtype) + ".");
  }
}

void CastBytes(const std::string& isa, Bytes into, const std::string& to, ConstBytes source, const std::string& from,
               int64_t elements, double factor, int64_t divisor, bool uncached) {
  const Compute& compute = ComputeByName(isa);
  const DType to_dtype = ParseDType(to), from_dtype = ParseDType(from);
  CheckElements(elements);
  CheckArray("into", into.data(), into.nbytes(), to_dtype, elements);
  CheckArray("source", source.data(), source.nbytes(), from_dtype, elements);
  if (divisor < 1) Refuse("`divisor` must be at least 1. Received: " + std::to_string(divisor) + ".");
  const Scaling scaling{factor, divisor};
  const bool floating = IsFloating(to_dtype) && IsFloating(from_dtype);
  const bool same = to_dtype == from_dtype && (scaling.identity() || IsReducible(to_dtype));
  if (!floating && !same) Refuse("Cannot cast " + from + " to " + to + " with this scaling.");
  nb::gil_scoped_release release;
  const auto cast = uncached ? &Compute::CastUncached : &Compute::Cast;
  (compute.*cast)(into.data(), to_dtype, source.data(), from_dtype, elements, scaling);
}

void ReduceBytes(const std::string& isa, Bytes into, const std::vector<ConstBytes>& sources, int64_t elements,
                 const std::string& dtype_name, int op) {
  const Compute& compute = ComputeByName(isa);
  const DType dtype = ParseDType(dtype_name);
  const ReduceOp reduce_op = ParseOp(op);
  if (!IsReducible(dtype)) Refuse("Cannot reduce " + dtype_name + ".");
  if (sources.empty()) Refuse("`sources` must hold at least one array.");
  CheckElements(elements);
  CheckArray("into", into.data(), into.nbytes(), dtype, elements);
  std::vector<const void*> pointers;
  for (const ConstBytes& source : sources) {
    CheckArray("sources", source.data(), source.nbytes(), dtype, elements);
    pointers.push_back(source.data());
  }
  nb::gil_scoped_release release;
  compute.Reduce(into.data(), pointers.data(), static_cast<int>(pointers.size()), elements, dtype, reduce_op);
}

// The bytes that are sent; `values` and `errors` (empty: none) are replaced.
nb::bytes QuantiseFloats(const std::string& isa, Floats values, Floats errors) {
  const auto elements = static_cast<int64_t>(values.size());
  if (errors.size() != 0 && errors.size() != values.size()) Refuse("`errors` must be empty or as long as `values`.");
  std::string sent(QuantisedBytes(elements), '\0');
  float* const kept = errors.size() == 0 ? nullptr : errors.data();
  ComputeByName(isa).Quantise(sent.data(), values.data(), kept, elements);
  return nb::bytes(sent.data(), sent.size());
}

void DequantiseFloats(const std::string& isa, Floats into, const nb::bytes& from, bool add) {
  if (from.size() != QuantisedBytes(static_cast<int64_t>(into.size()))) Refuse("`from` has another length.");
  ComputeByName(isa).Dequantise(into.data(), from.c_str(), static_cast<int64_t>(into.size()), add);
}

}  // namespace

void BindCompute(nb::module_& m) {
  m.def("compute_isas", &Isas, "Names of the instruction sets this processor can run.");
  m.def("compute_cast", &CastBytes, nb::arg("isa"), nb::arg("into").noconvert(), nb::arg("to"),
        nb::arg("source").noconvert(), nb::arg("from"), nb::arg("elements"), nb::arg("factor") = 1.0,
        nb::arg("divisor") = 1, nb::arg("uncached") = false, "Compute::Cast or CastUncached on bytes.");
  m.def("compute_reduce", &ReduceBytes, nb::arg("isa"), nb::arg("into").noconvert(), nb::arg("sources"),
        nb::arg("elements"), nb::arg("dtype"), nb::arg("op"), "Compute::Reduce on bytes.");
  m.def("compute_quantise", &QuantiseFloats, nb::arg("isa"), nb::arg("values").noconvert(),
        nb::arg("errors").noconvert(), "Compute::Quantise.");
  m.def("compute_dequantise", &DequantiseFloats, nb::arg("isa"), nb::arg("into").noconvert(), nb::arg("from"),
        nb::arg("add"), "Compute::Dequantise.");
}

}  // namespace smddp
