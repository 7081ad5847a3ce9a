// The arithmetic of one instruction set, as plain functions. kernels_<isa>.cc fills one table each; cpu_compute.cc is
// the only reader.
//
// The kernels_*.cc files are compiled with instructions that this machine may not have. Nothing they define may be
// shared with the rest of the program, or the linker could keep their copy: they export one function each, keep
// everything else in an anonymous namespace, and include no header with inline code (so not compute.h, whose virtual
// destructor would be emitted there, nor core/dtype.h).
#pragma once

#include <cstdint>

namespace smddp {

// The first DTypes: uint8 int8 int32 int64 float16 bfloat16 float32 float64 bool int16 uint16
constexpr int kReducibleTypes = 11;
constexpr int kFirstFloatingType = 4;
constexpr int kFloatingTypes = 4;
constexpr int kIntegerTypes = 6;          // the first four and the last two
constexpr int kReduceOps = 4;             // Sum, Min, Max, Product
constexpr int64_t kQuantisedBlock = 256;  // elements with one scale

// Compute::Reduce for one dtype and operator; count >= 2.
using ReduceKernel = void (*)(void* into, const void* const* sources, int count, int64_t elements);
// Compute::Cast between two floating dtypes. `multiplier` is used only when `scaled`. In place (same address) only
// when both dtypes have the same size.
using CastKernel = void (*)(void* into, const void* from, int64_t elements, bool scaled, double multiplier);
// Compute::Cast within one integer dtype; divisor >= 1. Products outside the dtype's range saturate; NaN becomes 0.
using ScaleKernel = void (*)(void* into, const void* from, int64_t elements, double factor, int64_t divisor);

// Compute::Quantise and Compute::Dequantise.
using QuantiseKernel = void (*)(void* into, float* values, float* errors, int64_t elements);
using DequantiseKernel = void (*)(float* into, const void* from, int64_t elements, bool add);

struct KernelTable {
  const char* name;
  ReduceKernel reduce[kReducibleTypes][kReduceOps];
  CastKernel cast[kFloatingTypes][kFloatingTypes];  // [to][from]
  ScaleKernel scale[kIntegerTypes];                 // in that order
  QuantiseKernel quantise;
  DequantiseKernel dequantise;
};

const KernelTable& GenericKernels();
const KernelTable& Avx2Kernels();    // x86-64 only: needs AVX2 and F16C
const KernelTable& Avx512Kernels();  // x86-64 only: needs AVX-512 F, BW, VL, DQ

}  // namespace smddp
