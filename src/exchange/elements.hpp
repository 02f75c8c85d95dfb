#pragma once

#include <cstddef>
#include <cstdint>

#include "src/tensor/dtype.hpp"

/// Elements of tensors in host memory, in any floating-point type.
namespace trireme::exchange {

constexpr bool is_floating(DType dtype) { return dtype <= DType::fp16; }

/// Converts `count` elements; rounds to nearest even.
void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count);

/// to [columns, rows] = the transpose of from [rows, columns], elements of `element_bytes`, 2, 4 or 8.
void transpose(const std::byte* from, std::int64_t rows, std::int64_t columns, std::int64_t element_bytes,
               std::byte* to);

/// Sets `count` elements to `value`.
void fill(std::byte* to, DType dtype, std::int64_t count, double value);

/// Adds `value` to `count` elements of fp64 or fp32.
void add(std::byte* to, DType dtype, std::int64_t count, double value);

}  // namespace trireme::exchange
