#include "cuda/kernels/fp8.hpp"

#include <limits>

#include "cuda/kernels/activation.cuh"
#include "cuda/kernels/dispatch.cuh"
#include "cuda/kernels/sums.cuh"

namespace trireme::cuda {
namespace {

// A block rounds a tile of 128 x 128, the square of one scale. A thread has eight rows of eight columns: columns of the
// lower half of a warp follow each other, so that a row is read in whole lines. Magnitudes are compared by their bits,
// of which a NaN's are the largest.

constexpr int tile = static_cast<int>(fp8_block), groups = tile / 8;
static_assert(groups * groups == block_threads);

struct LargerBits {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a > b ? a : b; }
};

/// Codes of the tile's columns, each of sixteen groups of eight rows. Group g of a column is at g ^ (column / 8), so
/// that the threads of a half warp write to different banks.
struct alignas(16) CodesOfColumns {
  std::uint64_t of[tile][groups];
};
struct SizesOfColumns {
  std::uint32_t of[warps][tile];
};
struct FactorsOfColumns {
  float of[tile];
};
struct PartialSumsOfColumns {
  float of[warps][tile];
};

/// Fp8Source of GELU: gelu(x), or x gelu'(z) if z is not null.
template <class T>
struct Source {
  Activation form;
  const T* z;
};

template <class T, class Function>
__device__ void replace(PackedVec8<T> (&own)[8], const PackedVec8<T> (&other)[8], const Function& function) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float value[8], z[8];
    own[i].unpack(value);
    other[i].unpack(z);
    T result[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) result[c] = gpu::narrow<T>(function(value[c], z[c]));
    own[i].pack(result);
  }
}

/// Replaces the thread's elements, whose first is at `offset`, by the results of the source. Each form has code of its
/// own: a branch for every element would keep the elements in memory.
template <class T>
__device__ void compute(const Source<T>& source, std::int64_t offset, std::int64_t columns, bool is_inside,
                        PackedVec8<T> (&own)[8]) {
  constexpr Activation tanh_form = Activation::gelu_tanh, erf_form = Activation::gelu_erf;
  PackedVec8<T> other[8];
  if (source.z == nullptr) {
    if (source.form == tanh_form) return replace(own, other, [](float x, float) { return activated(tanh_form, x); });
    return replace(own, other, [](float x, float) { return activated(erf_form, x); });
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) other[i].load(source.z + offset + i * columns, is_inside ? 8 : 0);
  if (source.form == tanh_form)
    return replace(own, other, [](float dy, float z) { return dy * activation_slope(tanh_form, z); });
  replace(own, other, [](float dy, float z) { return dy * activation_slope(erf_form, z); });
}

/// Transposes four bytes of four words.
__device__ inline void transpose(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  const std::uint32_t ab = gpu::permute_bytes(a, b, 0x5140), cd = gpu::permute_bytes(c, d, 0x5140);
  const std::uint32_t upper_ab = gpu::permute_bytes(a, b, 0x7362), upper_cd = gpu::permute_bytes(c, d, 0x7362);
  a = gpu::permute_bytes(ab, cd, 0x5410);
  b = gpu::permute_bytes(ab, cd, 0x7632);
  c = gpu::permute_bytes(upper_ab, upper_cd, 0x5410);
  d = gpu::permute_bytes(upper_ab, upper_cd, 0x7632);
}

/// Codes of eight numbers, in two words.
struct Codes {
  std::uint32_t low, high;
};
template <Fp8Format format>
__device__ Codes codes_of(const float (&value)[8], const float (&factor)[8]) {
  const auto pair = [&](int i) -> std::uint32_t {
    return gpu::fp8_codes<format>(value[i] * factor[i], value[i + 1] * factor[i + 1]);
  };
  return {pair(0) | pair(2) << 16, pair(4) | pair(6) << 16};
}

/// Sums of the columns of a tile. A warp adds eight rows of each half, and the block its warps in order.
template <class T>
__device__ void sum_columns(const PackedVec8<T> (&own)[8], int column_group, std::int64_t rest, float* sums) {
  float sum[8]{};
  for (int i = 0; i < 8; ++i) {
    float value[8];
    own[i].unpack(value);
    for (int j = 0; j < 8; ++j) sum[j] += value[j];
  }
  auto& of_warps = gpu::shared<PartialSumsOfColumns>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int j = 0; j < 8; ++j) {
    const float both = sum[j] + __shfl_xor_sync(all_lanes, sum[j], groups);
    if (thread % warp_threads < groups) of_warps.of[thread / warp_threads][8 * column_group + j] = both;
  }
  __syncthreads();
  if (thread >= tile || thread >= rest) return;
  float total = 0;
  for (int i = 0; i < warps; ++i) total += of_warps.of[i][thread];
  sums[thread] = total;
}

/// To e5m2 if `is_wide`, else to e4m3.
template <class T, bool is_wide, bool has_source>
__global__ void __launch_bounds__(block_threads)
    round_operand_kernel(std::int64_t rows, std::int64_t columns, const T* x, Source<T> source, Fp8Blocks blocks,
                         const double* amax, int margin, Fp8Forms forms, double* seen) {
  const auto& [row_codes, row_scales, column_codes, column_scales, sums] = forms;
  constexpr Fp8Format format = is_wide ? Fp8Format::e5m2 : Fp8Format::e4m3;
  const std::int64_t row_tiles = (rows + tile - 1) / tile, column_tiles = (columns + tile - 1) / tile;
  const std::int64_t row_tile = blockIdx.x / column_tiles, column_tile = blockIdx.x % column_tiles;
  const int column_group = static_cast<int>(threadIdx.x) % groups, row_group = static_cast<int>(threadIdx.x) / groups;
  const std::int64_t first_row = row_tile * tile + 8 * row_group, first_column = column_tile * tile + 8 * column_group;
  const bool is_inside = first_row < rows && first_column < columns;
  PackedVec8<T> own[8];
  for (int i = 0; i < 8; ++i) own[i].load(x + (first_row + i) * columns + first_column, is_inside ? 8 : 0);
  if constexpr (has_source) compute(source, first_row * columns + first_column, columns, is_inside, own);
  if (sums != nullptr) {
    const std::int64_t column = column_tile * tile;
    sum_columns(own, column_group, columns - column, sums + row_tile * columns + column);
  }

  std::uint32_t row_size[8]{}, column_size[8]{}, size = 0;
  if (seen != nullptr || blocks != Fp8Blocks::whole) {
    for (int i = 0; i < 8; ++i) {
      float value[8];
      own[i].unpack(value);
      for (int j = 0; j < 8; ++j) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(value[j]) & 0x7fffffffu;
        row_size[i] = LargerBits{}(row_size[i], bits);
        column_size[j] = LargerBits{}(column_size[j], bits);
      }
      size = LargerBits{}(size, row_size[i]);
    }
  }
  if (seen != nullptr || blocks == Fp8Blocks::squares) size = block_combine<LargerBits>(size);
  if (seen != nullptr && threadIdx.x == 0) {
    const double largest =
        size > 0x7f800000u ? std::numeric_limits<double>::infinity() : double{std::bit_cast<float>(size)};
    gpu::atomic_max(reinterpret_cast<std::uint64_t*>(seen), std::bit_cast<std::uint64_t>(largest));
  }

  // Factors of the thread's rows and columns, by which numbers are multiplied before they are rounded.
  float row_factor[8], column_factor[8];
  if (blocks == Fp8Blocks::vectors) {
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t of_row = warp_combine<LargerBits, groups>(row_size[i]);
      const int exponent = fp8_scale_exponent(std::bit_cast<float>(of_row), format, margin);
      row_factor[i] = power_of_two(exponent);
      if (row_codes != nullptr && column_group == 0 && first_row + i < rows)
        row_scales[column_tile * rows + first_row + i] = power_of_two(-exponent);
    }
    auto& of_warps = gpu::shared<SizesOfColumns>();
    auto& factors = gpu::shared<FactorsOfColumns>();
    const int warp = static_cast<int>(threadIdx.x) / warp_threads;
    for (int j = 0; j < 8; ++j) {
      const std::uint32_t other = __shfl_xor_sync(all_lanes, column_size[j], groups);
      if (threadIdx.x % warp_threads < groups)
        of_warps.of[warp][8 * column_group + j] = LargerBits{}(column_size[j], other);
    }
    __syncthreads();
    if (const int j = static_cast<int>(threadIdx.x); j < tile) {
      std::uint32_t of_column = 0;
      for (int i = 0; i < warps; ++i) of_column = LargerBits{}(of_column, of_warps.of[i][j]);
      const int exponent = fp8_scale_exponent(std::bit_cast<float>(of_column), format, margin);
      factors.of[j] = power_of_two(exponent);
      const std::int64_t column = column_tile * tile + j;
      if (column_codes != nullptr && column < columns)
        column_scales[row_tile * columns + column] = power_of_two(-exponent);
    }
    __syncthreads();
    for (int j = 0; j < 8; ++j) column_factor[j] = factors.of[8 * column_group + j];
  } else {
    const bool is_square = blocks == Fp8Blocks::squares;
    const float largest = is_square ? std::bit_cast<float>(size) : static_cast<float>(*amax);
    const int exponent = fp8_scale_exponent(largest, format, margin);
    for (int i = 0; i < 8; ++i) row_factor[i] = column_factor[i] = power_of_two(exponent);
    if (threadIdx.x == 0 && (is_square || blockIdx.x == 0)) {
      const std::int64_t in_rows = is_square ? row_tile * ((column_tiles + 3) / 4 * 4) + column_tile : 0;
      const std::int64_t in_columns = is_square ? column_tile * ((row_tiles + 3) / 4 * 4) + row_tile : 0;
      if (row_codes != nullptr) row_scales[in_rows] = power_of_two(-exponent);
      if (column_codes != nullptr) column_scales[in_columns] = power_of_two(-exponent);
    }
  }

  Codes codes[8];
  for (int i = 0; i < 8; ++i) {
    float value[8], factor[8];
    own[i].unpack(value);
    for (float& each : factor) each = row_factor[i];
    codes[i] = codes_of<format>(value, factor);
    if (row_codes != nullptr && is_inside) {
      *reinterpret_cast<std::uint64_t*>(row_codes + (first_row + i) * columns + first_column) =
          codes[i].low | std::uint64_t{codes[i].high} << 32;
    }
    if (column_codes != nullptr && blocks == Fp8Blocks::vectors) codes[i] = codes_of<format>(value, column_factor);
  }
  if (column_codes == nullptr) return;
  transpose(codes[0].low, codes[1].low, codes[2].low, codes[3].low);
  transpose(codes[4].low, codes[5].low, codes[6].low, codes[7].low);
  transpose(codes[0].high, codes[1].high, codes[2].high, codes[3].high);
  transpose(codes[4].high, codes[5].high, codes[6].high, codes[7].high);
  auto& turned = gpu::shared<CodesOfColumns>();
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t low = j < 4 ? codes[j].low : codes[j - 4].high;
    const std::uint32_t high = j < 4 ? codes[j + 4].low : codes[j].high;
    turned.of[8 * column_group + j][row_group ^ column_group] = low | std::uint64_t{high} << 32;
  }
  __syncthreads();
  for (int piece = static_cast<int>(threadIdx.x); piece < tile * groups / 2; piece += block_threads) {
    const int j = piece / (groups / 2), pair = piece % (groups / 2);
    const std::int64_t column = column_tile * tile + j, row = row_tile * tile + 16 * pair;
    if (column >= columns || row >= rows) continue;
    const int in_group = j / 8;
    const auto both = *reinterpret_cast<const SixteenBytes<std::uint64_t>*>(&turned.of[j][2 * (pair ^ in_group / 2)]);
    SixteenBytes<std::uint64_t> ordered;
    const bool is_turned = in_group % 2 != 0;
    ordered.elements[0] = is_turned ? both.elements[1] : both.elements[0];
    ordered.elements[1] = is_turned ? both.elements[0] : both.elements[1];
    gpu::store_whole(ordered, column_codes + column * rows + row);
  }
}

}  // namespace

Fp8Forms fp8_forms(std::byte* memory, std::int64_t rows, std::int64_t columns, bool by_blocks, bool has_sums) {
  auto* const codes = reinterpret_cast<std::uint8_t*>(memory);
  const std::int64_t size = fp8_codes_bytes(rows, columns), form = fp8_form_bytes(rows, columns, by_blocks);
  std::byte* const sums = has_sums ? memory + fp8_copy_bytes(rows, columns, by_blocks) : nullptr;
  return {codes, reinterpret_cast<float*>(memory + size), codes + form, reinterpret_cast<float*>(memory + form + size),
          reinterpret_cast<float*>(sums)};
}

void round_operand(Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns, const void* x,
                   const Fp8Operand& operand, int margin, Fp8Blocks blocks, const Fp8Forms& forms) {
  const std::int64_t tiles = (rows + tile - 1) / tile * ((columns + tile - 1) / tile);
  const double* const amax = operand.amax ? operand.amax.as<double>() : nullptr;
  double* const seen = operand.seen ? operand.seen.as<double>() : nullptr;
  const Activation form = operand.source.activation;
  TRIREME_CHECK(form == Activation::none || form == Activation::gelu_tanh || form == Activation::gelu_erf, ShapeError,
                "round_operand computes GELU alone, not activation {}", static_cast<int>(form));
  const auto start = [&]<class T, bool is_wide, bool has_source>() {
    const Source<T> source{form, operand.source.pre_activation ? operand.source.pre_activation.as<T>() : nullptr};
    gpu::launch(stream, {"round_operand", tiles, block_threads}, round_operand_kernel<T, is_wide, has_source>, rows,
                columns, static_cast<const T*>(x), source, blocks, amax, margin, forms, seen);
  };
  const auto start_from = [&]<class T, bool is_wide>() {
    return form == Activation::none ? start.template operator()<T, is_wide, false>()
                                    : start.template operator()<T, is_wide, true>();
  };
  const bool is_wide = operand.format == Fp8Format::e5m2;
  if (dtype == DType::bf16)
    return is_wide ? start_from.template operator()<bf16, true>() : start_from.template operator()<bf16, false>();
  TRIREME_CHECK(dtype == DType::fp32, ConfigError, "<fp8_format> does not support {}: use <bf16>", name_of(dtype));
  return is_wide ? start_from.template operator()<float, true>() : start_from.template operator()<float, false>();
}

}  // namespace trireme::cuda
