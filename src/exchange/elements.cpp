#include "src/exchange/elements.hpp"

#include <algorithm>
#include <cstring>

namespace trireme::exchange {
namespace {

template <class Element>
void transpose_elements(const std::byte* from, std::int64_t rows, std::int64_t columns, std::byte* to) {
  constexpr std::int64_t tile = 32;  // two tiles stay in the cache of the first level
  const auto* in = reinterpret_cast<const Element*>(from);
  auto* out = reinterpret_cast<Element*>(to);
  for (std::int64_t i = 0; i < rows; i += tile) {
    for (std::int64_t j = 0; j < columns; j += tile) {
      for (std::int64_t row = i; row < std::min(i + tile, rows); ++row) {
        for (std::int64_t column = j; column < std::min(j + tile, columns); ++column) {
          out[column * rows + row] = in[row * columns + column];
        }
      }
    }
  }
}

}  // namespace

void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_type));
    return;
  }
  dispatch_float(from_type, [&]<class From>() {
    dispatch_float(to_type, [&]<class To>() {
      // 16-bit types round from fp32: they have no conversion from fp64.
      using Between = std::conditional_t<sizeof(To) == 2 || sizeof(From) == 2, float, double>;
      const auto* in = reinterpret_cast<const From*>(from);
      auto* out = reinterpret_cast<To*>(to);
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(static_cast<Between>(in[i]));
    });
  });
}

void transpose(const std::byte* from, std::int64_t rows, std::int64_t columns, std::int64_t element_bytes,
               std::byte* to) {
  if (element_bytes == 8) return transpose_elements<std::uint64_t>(from, rows, columns, to);
  if (element_bytes == 4) return transpose_elements<std::uint32_t>(from, rows, columns, to);
  transpose_elements<std::uint16_t>(from, rows, columns, to);
}

void fill(std::byte* to, DType dtype, std::int64_t count, double value) {
  dispatch_float(dtype, [&]<class T>() {
    std::fill_n(reinterpret_cast<T*>(to), count, static_cast<T>(static_cast<Accumulation<T>>(value)));
  });
}

void add(std::byte* to, DType dtype, std::int64_t count, double value) {
  dispatch_float(dtype, [&]<class T>() {
    auto* elements = reinterpret_cast<T*>(to);
    for (std::int64_t i = 0; i < count; ++i) {
      elements[i] = static_cast<T>(static_cast<Accumulation<T>>(elements[i]) + static_cast<Accumulation<T>>(value));
    }
  });
}

}  // namespace trireme::exchange
