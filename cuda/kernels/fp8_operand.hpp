#pragma once

#include "cuda/kernels/fp8.hpp"
#include "cuda/runtime/memory.hpp"
#include "src/backend/kernels/kernel_call.hpp"

namespace trireme::cuda {

/// An operand of a product in FP8, in its copy or, for this object's lifetime, in scratch memory.
class OperandInFp8 {
 public:
  /// Enqueues the rounding, unless a copy is made. The sum runs along the columns of x, or over its rows. `needs_sums`:
  /// of the columns, which Fp8Operand::makes_sums allows.
  OperandInFp8(CudaStream& stream, DeviceMemory& memory, ConstTensorView x, const Fp8Operand& operand, int margin,
               Fp8Blocks blocks, bool over_rows, bool needs_sums) {
    const std::int64_t rows = rows_of(x.shape()), columns = x.shape().back();
    TRIREME_CHECK(rows % 16 == 0 && columns % 16 == 0, ShapeError,
                  "an operand in FP8 is {} x {}, but cuBLASLt needs multiples of 16", rows, columns);
    const bool by_blocks = blocks != Fp8Blocks::whole;
    Fp8Forms forms;
    if (operand.copy != nullptr) {
      forms = fp8_forms(operand.copy->memory.data(), rows, columns, by_blocks, operand.copy->has_sums);
    } else {
      const std::int64_t size =
          over_rows ? fp8_form_bytes(columns, rows, by_blocks) : fp8_form_bytes(rows, columns, by_blocks);
      scratch_ =
          memory.allocate_on(stream, static_cast<std::size_t>(size + (needs_sums ? fp8_sums_bytes(rows, columns) : 0)));
      if (needs_sums) forms.sums = reinterpret_cast<float*>(scratch_.data() + size);
      (over_rows ? forms.columns : forms.rows) = reinterpret_cast<std::uint8_t*>(scratch_.data());
      (over_rows ? forms.column_scales : forms.row_scales) =
          reinterpret_cast<float*>(scratch_.data() + fp8_codes_bytes(rows, columns));
    }
    if (operand.copy == nullptr || !operand.copy->made)
      round_operand(stream, x.dtype(), rows, columns, x.data(), operand, margin, blocks, forms);
    if (operand.copy != nullptr) operand.copy->made = true;
    codes_ = over_rows ? forms.columns : forms.rows;
    scales_ = over_rows ? forms.column_scales : forms.row_scales;
    sums_ = forms.sums;
  }

  const std::uint8_t* codes() const { return codes_; }
  const float* scales() const { return scales_; }
  /// Fp8Forms::sums, or null.
  const float* sums() const { return sums_; }

 private:
  Buffer scratch_;
  const std::uint8_t* codes_;
  const float* scales_;
  const float* sums_;
};

}  // namespace trireme::cuda
