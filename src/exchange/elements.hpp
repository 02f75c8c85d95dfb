#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/tensor/dtype.hpp"

/// Elements of tensors in host memory, in any floating-point type.
namespace trireme::exchange {

constexpr bool is_floating(DType dtype) { return dtype <= DType::fp16; }

/// Converts `count` elements, rounding to nearest even. Returns how many finite ones became infinite.
std::int64_t convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count);

/// Converts element [row, column] of `from` [rows, columns] to element [column, row] of `to`, whose rows are
/// `to_stride` elements apart. Returns the same.
std::int64_t convert_transposed(const std::byte* from, DType from_type, std::int64_t rows, std::int64_t columns,
                                std::byte* to, DType to_type, std::int64_t to_stride);

/// Throws ConfigError if elements of a tensor are lost: finite ones that `dtype` cannot hold.
void require_finite(std::int64_t lost, std::string_view tensor, DType dtype);

void fill(std::byte* to, DType dtype, std::int64_t count, double value);

/// Adds `value` to `count` elements of fp64 or fp32.
void add(std::byte* to, DType dtype, std::int64_t count, double value);

}  // namespace trireme::exchange
