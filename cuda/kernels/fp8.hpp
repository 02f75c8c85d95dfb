#pragma once

#include <cstdint>

#include "cuda/cublaslt/fp8_types.hpp"
#include "src/tensor/stream.hpp"

namespace trireme::cuda {

/// An operand x [rows, columns] in FP8. `rows` is x as it lies in memory, for products that sum along its columns;
/// `columns` is x^T, for those that sum along its rows. Each has the factors by which its numbers are multiplied, in
/// cuBLASLt's layout (manual, "Scaling factors layouts"), here of `rows`: one; or [columns / 128, rows] of vectors; or
/// [rows / 128, columns / 128] of squares, whose rows are padded to four.
struct Fp8Forms {
  std::uint8_t* rows = nullptr;  ///< null: not made
  float* row_scales = nullptr;
  std::uint8_t* columns = nullptr;  ///< null: not made
  float* column_scales = nullptr;
  float* sums = nullptr;  ///< sums of columns over fp8_block rows, [rows / 128, columns]; null: not made
};

/// Parts of a copy of fp8_copy_bytes, and behind them its sums.
Fp8Forms fp8_forms(std::byte* memory, std::int64_t rows, std::int64_t columns, bool by_blocks, bool has_sums);

/// Rounds x [rows, columns], of `dtype` fp32 or bf16, or the result of operand.source, to the forms that are not null,
/// in one pass. The extents are multiples of 8, `rows` of 16 for `columns`. Scales are made on the device
/// (fp8_scale_exponent). Sums are those before the rounding to FP8, in an order that depends on the extents alone.
/// Stream-ordered; overwrites the forms, and operand.seen as it says there.
void round_operand(Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x,
                   const Fp8Operand& operand, int margin, Fp8Blocks blocks, const Fp8Forms& forms);

}  // namespace trireme::cuda
