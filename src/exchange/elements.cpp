#include "src/exchange/elements.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::exchange {
namespace {

/// Returns the fp32 number beside `value` whose last bit is set, if it is not one itself. Rounding this to 16 bits
/// gives what rounding `value` does (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  const bool is_beyond = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float truncated = is_beyond ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) | 1u);
}

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else {
    if constexpr (sizeof(To) == 2 && std::is_same_v<From, double>) return static_cast<To>(rounded_to_odd(value));
    // 16-bit types convert only from and to fp32.
    using Between = std::conditional_t<sizeof(To) == 2 || sizeof(From) == 2, float, double>;
    return static_cast<To>(static_cast<Between>(value));
  }
}

/// Returns whether a finite number became infinite.
template <class From, class To>
bool is_lost(From from, To to) {
  constexpr bool has_shorter_range =
      sizeof(To) < sizeof(From) || (std::is_same_v<From, bf16> && std::is_same_v<To, fp16>);
  if constexpr (!has_shorter_range) return false;
  return std::isfinite(static_cast<Accumulation<From>>(from)) && std::isinf(static_cast<float>(to));
}

/// Transposes tile by tile in the cache, so that memory is read and written in full cache lines. Returns how many
/// elements are lost.
template <class From, class To>
std::int64_t transpose_elements(const From* from, std::int64_t rows, std::int64_t columns, To* to,
                                std::int64_t to_stride) {
  constexpr std::int64_t side = 64;
  std::array<To, side * side> tile;  // [column][row]
  std::int64_t lost = 0;
  for (std::int64_t i = 0; i < rows; i += side) {
    const std::int64_t tile_rows = std::min(side, rows - i);
    for (std::int64_t j = 0; j < columns; j += side) {
      const std::int64_t tile_columns = std::min(side, columns - j);
      for (std::int64_t row = 0; row < tile_rows; ++row) {
        const From* const in = from + (i + row) * columns + j;
        for (std::int64_t column = 0; column < tile_columns; ++column) {
          tile[column * side + row] = converted<To>(in[column]);
          lost += is_lost(in[column], tile[column * side + row]);
        }
      }
      for (std::int64_t column = 0; column < tile_columns; ++column) {
        std::copy_n(tile.data() + column * side, tile_rows, to + (j + column) * to_stride + i);
      }
    }
  }
  return lost;
}

}  // namespace

std::int64_t convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_type));
    return 0;
  }
  std::int64_t lost = 0;
  dispatch_float(from_type, [&]<class From>() {
    dispatch_float(to_type, [&]<class To>() {
      const auto* in = reinterpret_cast<const From*>(from);
      auto* out = reinterpret_cast<To*>(to);
      for (std::int64_t i = 0; i < count; ++i) {
        out[i] = converted<To>(in[i]);
        lost += is_lost(in[i], out[i]);
      }
    });
  });
  return lost;
}

std::int64_t convert_transposed(const std::byte* from, DType from_type, std::int64_t rows, std::int64_t columns,
                                std::byte* to, DType to_type, std::int64_t to_stride) {
  std::int64_t lost = 0;
  dispatch_float(from_type, [&]<class From>() {
    dispatch_float(to_type, [&]<class To>() {
      lost =
          transpose_elements(reinterpret_cast<const From*>(from), rows, columns, reinterpret_cast<To*>(to), to_stride);
    });
  });
  return lost;
}

void require_finite(std::int64_t lost, std::string_view tensor, DType dtype) {
  TRIREME_CHECK(lost == 0, ConfigError, "{} has {} that would be infinite in {}. Choose a <dtype> with a larger range",
                tensor, counted(lost, "finite element"), name_of(dtype));
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
