// Compute over a table of kernels: checks the contract, handles the cases that are plain copies, and picks the kernel.
#pragma once

#include "compute/compute.h"
#include "compute/cpu/kernel_table.h"

namespace smddp {

class TableCompute : public Compute {
 public:
  // Keeps a reference to `table`, which must live as long as the object.
  explicit TableCompute(const KernelTable& table) : table_(table) {}

  const char* name() const override { return table_.name; }
  void Cast(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
            const Scaling& scaling) const override;
  void CastUncached(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
                    const Scaling& scaling) const override;
  void Reduce(void* into, const void* const* sources, int count, int64_t elements, DType dtype,
              ReduceOp op) const override;
  void Quantise(void* into, float* values, float* errors, int64_t elements) const override;
  void Dequantise(float* into, const void* from, int64_t elements, bool add) const override;

 private:
  void CastFloating(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
                    const Scaling& scaling) const;

  const KernelTable& table_;
};

}  // namespace smddp
