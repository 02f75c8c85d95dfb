#include "src/backend/cpu/bf16_tiles.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace trireme::cpu {

#if defined(__x86_64__)

namespace {

#define TRIREME_TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw")))

/// A tile of sums is 16 x 16. Its factors have 16 rows of 16 pairs of terms: a tile of a has a row of it in a row, a
/// tile of b a column of it in a column. Two by two tiles of sums use all eight registers.
constexpr std::int64_t tile = 16, block = ProductBlock::extent, tile_terms = 32, tile_elements = tile * tile_terms;
/// Terms for which two tiles of rows of a stay in the L1 cache: of an entire sum, and of a part, whose sums are read,
/// too. Loads of b have a hint that keeps it out of there.
constexpr std::int64_t max_depth = 768, max_partial_depth = 512;
/// Elements of the copy of b that stay in the L2 cache.
constexpr std::int64_t max_copied = 640 * 1024;
/// Stride of sums: those of a block take 16 of the 64 sets of the L1 cache.
constexpr std::int64_t sums_stride = 4 * block;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t x, std::int64_t unit) { return divide_up(x, unit) * unit; }

/// Pairs of terms: [r][p] holds the terms 2 p and 2 p + 1 of row r.
using Pairs = __m512i[tile];

/// Exchanges rows and pairs.
TRIREME_TILES inline void transpose(Pairs& x) {
  Pairs y;
#pragma GCC unroll 8
  for (int r = 0; r < 16; r += 2) {
    y[r] = _mm512_unpacklo_epi32(x[r], x[r + 1]);
    y[r + 1] = _mm512_unpackhi_epi32(x[r], x[r + 1]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 16; r += 4) {
    x[r] = _mm512_unpacklo_epi64(y[r], y[r + 2]);
    x[r + 1] = _mm512_unpackhi_epi64(y[r], y[r + 2]);
    x[r + 2] = _mm512_unpacklo_epi64(y[r + 1], y[r + 3]);
    x[r + 3] = _mm512_unpackhi_epi64(y[r + 1], y[r + 3]);
  }
  // x[4 g + c], quarter q: pair 4 q + c of the rows 4 g to 4 g + 3
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88), b = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd), e = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
    y[c] = _mm512_shuffle_i32x4(a, b, 0x88);
    y[8 + c] = _mm512_shuffle_i32x4(a, b, 0xdd);
    y[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
    y[12 + c] = _mm512_shuffle_i32x4(d, e, 0xdd);
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) x[r] = y[r];
}

/// Form of a factor in its tiles.
enum class Form { a, b };

/// Copies a tile of at most `rows` rows and `terms` terms, the others 0. Row r begins at from + r * stride.
template <Form form, bool is_full>
TRIREME_TILES inline void copy_rows(const bf16* from, std::int64_t stride, std::int64_t rows, std::int64_t terms,
                                    bf16* to) {
  const __mmask32 some = is_full || terms >= tile_terms ? ~__mmask32{0} : (__mmask32{1} << terms) - 1;
  Pairs x;
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    x[r] = is_full    ? _mm512_loadu_si512(from + r * stride)
           : r < rows ? _mm512_maskz_loadu_epi16(some, from + r * stride)
                      : _mm512_setzero_si512();
  }
  if constexpr (form == Form::b) transpose(x);
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) _mm512_store_si512(to + r * tile_terms, x[r]);
}

/// The same for the two tiles of 32 rows of a transposed matrix: term t begins at from + t * stride.
template <Form form, bool is_full>
TRIREME_TILES inline void copy_terms(const bf16* from, std::int64_t stride, std::int64_t rows, std::int64_t terms,
                                     bf16* to) {
  const __mmask32 some = is_full || rows >= block ? ~__mmask32{0} : (__mmask32{1} << rows) - 1;
  const __m512i upper = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                lower = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  Pairs x, y;
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    const bf16* at = from + 2 * p * stride;
    const __m512i even = is_full         ? _mm512_loadu_si512(at)
                         : 2 * p < terms ? _mm512_maskz_loadu_epi16(some, at)
                                         : _mm512_setzero_si512();
    const __m512i odd = is_full             ? _mm512_loadu_si512(at + stride)
                        : 2 * p + 1 < terms ? _mm512_maskz_loadu_epi16(some, at + stride)
                                            : _mm512_setzero_si512();
    // Pairs of the rows 8 i to 8 i + 3, and of the others
    const __m512i first = _mm512_unpacklo_epi16(even, odd), second = _mm512_unpackhi_epi16(even, odd);
    x[p] = _mm512_permutex2var_epi64(first, upper, second);
    y[p] = _mm512_permutex2var_epi64(first, lower, second);
  }
  if constexpr (form == Form::a) {
    transpose(x);
    transpose(y);
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    _mm512_store_si512(to + r * tile_terms, x[r]);
    _mm512_store_si512(to + tile_elements + r * tile_terms, y[r]);
  }
}

/// Copies two tiles of at most `rows` rows and `terms` terms, the others 0.
template <Form form, bool is_full>
TRIREME_TILES inline void copy_block(const Matrix<bf16>& matrix, std::int64_t rows, std::int64_t terms, bf16* to) {
  if (matrix.transposed) {
    copy_terms<form, is_full>(matrix.data, matrix.stride, rows, terms, to);
  } else {
    copy_rows<form, is_full>(matrix.data, matrix.stride, rows, terms, to);
    copy_rows<form, is_full>(matrix.data + tile * matrix.stride, matrix.stride, rows - tile, terms, to + tile_elements);
  }
}

/// Lines of some rows that are needed soon. Each call requests an equal number of them from memory: they are too far
/// apart for the hardware prefetcher.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* rows, std::int64_t count, std::int64_t bytes, std::int64_t stride_bytes, std::int64_t calls)
      : at_(static_cast<const char*>(rows)),
        stride_(stride_bytes),
        columns_(divide_up(bytes, 64)),
        left_(count),
        each_(divide_up(count * columns_, calls)) {}
  /// The first `rows` rows and `terms` terms of a factor.
  static Ahead of_factor(const Matrix<bf16>& matrix, std::int64_t rows, std::int64_t terms, std::int64_t calls) {
    if (matrix.transposed) std::swap(rows, terms);
    return {matrix.data, rows, 2 * terms, 2 * matrix.stride, calls};
  }

  template <bool writes = false>
  void request() {
    for (std::int64_t line = 0; line < each_ && left_ > 0; ++line) {
      if constexpr (writes) {
        __builtin_prefetch(at_ + column_ * 64, 1);
      } else {
        __builtin_prefetch(at_ + column_ * 64, 0, 2);
      }
      if (++column_ < columns_) continue;
      column_ = 0;
      at_ += stride_;
      --left_;
    }
  }

 private:
  const char* at_ = nullptr;
  std::int64_t stride_ = 0, columns_ = 0, left_ = 0, each_ = 0, column_ = 0;
};

/// Copies `rows` rows of `terms` terms to the tiles [rows / 32][terms / 32][2], filled up with 0. Reads them in the
/// order of memory, and requests the next 32 rows, or terms, at the same time.
template <Form form>
TRIREME_TILES void copy_factor(const Matrix<bf16>& matrix, std::int64_t rows, std::int64_t terms, bf16* to) {
  const std::int64_t outer = matrix.transposed ? terms : rows, inner = matrix.transposed ? rows : terms;
  for (std::int64_t x = 0; x < outer; x += block) {
    Ahead next(matrix.data + (x + block) * matrix.stride, std::clamp<std::int64_t>(outer - x - block, 0, block),
               2 * inner, 2 * matrix.stride, divide_up(inner, block));
    for (std::int64_t y = 0; y < inner; y += block) {
      next.request();
      const std::int64_t r = matrix.transposed ? y : x, t = matrix.transposed ? x : y;
      bf16* const tiles = to + (r * divide_up(terms, tile_terms) + t) * block;
      if (r + block <= rows && t + tile_terms <= terms) {
        copy_block<form, true>(matrix.block(r, t), block, tile_terms, tiles);
      } else {
        copy_block<form, false>(matrix.block(r, t), rows - r, terms - t, tiles);
      }
    }
  }
}

/// c = a b, or c += a b, for 32 x 32 sums over the terms of `steps` pairs of tiles, each of which requests some lines.
TRIREME_TILES inline void multiply_block(const bf16* a, const bf16* b, std::int64_t steps, bool accumulate, float* c,
                                         Ahead& factor, Ahead& other, Ahead& result) {
  constexpr std::int64_t bytes = sums_stride * sizeof(float);
  float* const below = c + tile * sums_stride;
  if (accumulate) {
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + tile, bytes);
    _tile_loadd(2, below, bytes);
    _tile_loadd(3, below + tile, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t step = 0; step < steps; ++step, a += 2 * tile_elements, b += 2 * tile_elements) {
    _tile_stream_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(7, b + tile_elements, 64);
    factor.request();
    _tile_dpbf16ps(1, 4, 7);
    other.request();
    result.request<true>();
    _tile_loadd(5, a + tile_elements, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + tile, bytes);
  _tile_stored(2, below, bytes);
  _tile_stored(3, below + tile, bytes);
}

Ahead lines_of(const TouchedMatrix& matrix, std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns,
               std::int64_t calls) {
  if (matrix.data == nullptr) return {};
  return {static_cast<const char*>(matrix.data) + i * matrix.stride_bytes + j * matrix.element_bytes, rows,
          columns * matrix.element_bytes, matrix.stride_bytes, calls};
}

/// Layout of the operand of LDTILECFG.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

bool ask_for_tiles() {
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM and its state component
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  bool has = isa == dnnl::cpu_isa::avx512_core_amx;
#if DNNL_VERSION_MAJOR >= 3
  has = has || isa == dnnl::cpu_isa::avx512_core_amx_fp16;
#endif
  return has && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

bool have_bf16_tiles() {
  static const bool have = ask_for_tiles();
  return have;
}

TRIREME_TILES void multiply_by_tiles(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a,
                                     const Matrix<bf16>& b, ScratchPool& scratch, const Touched& touched,
                                     const std::function<void(const ProductBlock&)>& finish) {
  const std::int64_t width = round_up(n, block);
  // All parts of the sum have the same depth but the last.
  const std::int64_t depth =
      round_up(divide_up(k, divide_up(k, k <= max_depth ? max_depth : max_partial_depth)), tile_terms);
  const std::int64_t terms =
      std::min(round_up(k, tile_terms), std::max(max_copied / width / depth, std::int64_t{1}) * depth);
  // Rows of a that are copied together. Where a is transposed, each term has two lines of them.
  const std::int64_t group = a.transposed ? 2 * block : block;
  // Sums that wait for later terms: none, those of a group, or all.
  const std::int64_t waiting_rows = k <= depth ? 0 : k <= terms ? group : round_up(m, block);
  const std::int64_t sum_count =
      std::max(block, waiting_rows) * (waiting_rows == 0 ? sums_stride : round_up(n, sums_stride));
  ScratchPool::Lease lease(scratch, static_cast<std::size_t>(width * terms + group * max_depth) * sizeof(bf16) +
                                        static_cast<std::size_t>(sum_count) * sizeof(float));
  bf16* const b_tiles = lease.take<bf16>(width * terms);
  bf16* const a_tiles = lease.take<bf16>(group * max_depth);
  float* const sums = lease.take<float>(sum_count);

  TileConfiguration configuration;
  std::fill_n(configuration.row_bytes, 8, 64);
  std::fill_n(configuration.rows, 8, 16);
  _tile_loadconfig(&configuration);
  for (std::int64_t first = 0; first < k; first += terms) {
    const std::int64_t some = std::min(terms, k - first);
    const Matrix<bf16> factor = b.block(first, 0);
    for (std::int64_t t = 0; t < some; t += depth) {
      copy_factor<Form::b>({factor.at(t, 0), factor.stride, !factor.transposed}, n, std::min(depth, some - t),
                           b_tiles + t * width);
    }
    for (std::int64_t top = 0; top < m; top += group) {
      for (std::int64_t t = 0; t < some; t += depth) {
        const std::int64_t part = std::min(depth, some - t), steps = divide_up(part, tile_terms);
        const std::int64_t rows_together = std::min(group, m - top);
        copy_factor<Form::a>(a.block(top, first + t), rows_together, part, a_tiles);
        const std::int64_t next_top = t + depth < some ? top : top + group, next_t = t + depth < some ? t + depth : 0;
        Ahead next =
            Ahead::of_factor(a.block(next_top, first + next_t), std::clamp<std::int64_t>(m - next_top, 0, group),
                             std::min(depth, some - next_t), divide_up(rows_together, block) * width / block * steps);
        for (std::int64_t i = top; i < top + rows_together; i += block) {
          float* const of_rows = sums + (waiting_rows > group ? i : i - top) * round_up(n, sums_stride);
          for (std::int64_t j = 0; j < n; j += block) {
            float* const c =
                waiting_rows == 0 ? sums : of_rows + j / sums_stride * sums_stride * block + j % sums_stride;
            const std::int64_t rows = std::min(block, m - i), columns = std::min(block, n - j);
            const bool is_last = first + t + part == k;
            Ahead other = is_last ? lines_of(touched.other, i, j, rows, columns, steps) : Ahead();
            Ahead result = is_last ? lines_of(touched.result, i, j, rows, columns, steps) : Ahead();
            multiply_block(a_tiles + (i - top) * steps * tile_terms, b_tiles + t * width + j * steps * tile_terms,
                           steps, first + t > 0, c, next, other, result);
            if (is_last) finish({c, sums_stride, i, j, rows, columns});
          }
        }
      }
    }
  }
  _tile_release();
  _mm_sfence();  // `finish` may write past the caches
}

#else

bool have_bf16_tiles() { return false; }
void multiply_by_tiles(std::int64_t, std::int64_t, std::int64_t, const Matrix<bf16>&, const Matrix<bf16>&, ScratchPool&,
                       const Touched&, const std::function<void(const ProductBlock&)>&) {}

#endif

}  // namespace trireme::cpu
