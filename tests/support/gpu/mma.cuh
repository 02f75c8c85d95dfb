#pragma once

// The counterpart of cuda/gpu/mma.cuh on the host, with the same fragments.

#include <gpu/device.cuh>

#include <atomic>
#include <bit>
#include <cstring>

namespace trireme::gpu {

namespace host {

struct Product {
  const std::uint32_t* a;
  std::uint32_t b[2];
  float* c;
};
struct Load {
  const void* row;
  std::uint32_t* to;
};

template <class T>
float half_of(std::uint32_t pair, int half) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(pair >> 16 * half)));
}

/// Products of warps so far, by which tests count tiles.
inline std::atomic<std::int64_t> products = 0;

template <class T>
void multiply(Arguments lanes) {
  ++products;
  float a[16][16], b[16][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    const auto& own = *static_cast<const Product*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) a[g + 8 * (r % 2)][2 * t + half + 8 * (r / 2)] = half_of<T>(own.a[r], half);
      for (int r = 0; r < 2; ++r) b[2 * t + half + 8 * r][g] = half_of<T>(own.b[r], half);
    }
  }
  float sums[16][8];
  const auto for_sums = [&](auto&& visit) {
    for (int lane = 0; lane < warp_size; ++lane) {
      for (int i = 0; i < 4; ++i) {
        visit(static_cast<const Product*>(lanes[lane])->c[i], sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]);
      }
    }
  };
  for_sums([](float own, float& sum) { sum = own; });
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for_sums([](float& own, float sum) { own = sum; });
}

template <bool transposed>
void load(Arguments lanes) {
  for (int lane = 0; lane < warp_size; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int next = 2 * (lane % 4) + i, row = transposed ? next : lane / 4, column = transposed ? lane / 4 : next;
        const void* from = static_cast<const Load*>(lanes[8 * matrix + row])->row;
        std::memcpy(&pair[i], static_cast<const std::uint16_t*>(from) + column, sizeof(pair[i]));
      }
      static_cast<const Load*>(lanes[lane])->to[matrix] = pair[0] | std::uint32_t{pair[1]} << 16;
    }
  }
}

}  // namespace host

template <class T>
void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float (&c)[4],
                  const std::source_location& where = std::source_location::current()) {
  host::Product product{a, {b0, b1}, c};
  host::warp_collective(&product, host::multiply<T>, where);
}

inline void load_matrices(const void* row, std::uint32_t (&to)[4],
                          const std::source_location& where = std::source_location::current()) {
  host::check_alignment(row, where);
  host::Load load{row, to};
  host::warp_collective(&load, host::load<false>, where);
}
inline void load_transposed(const void* row, std::uint32_t (&to)[4],
                            const std::source_location& where = std::source_location::current()) {
  host::check_alignment(row, where);
  host::Load load{row, to};
  host::warp_collective(&load, host::load<true>, where);
}

inline void copy_async(void* shared, const void* global, bool valid,
                       const std::source_location& where = std::source_location::current()) {
  host::check_alignment(shared, where);
  if (valid) host::check_alignment(global, where);
  host::copy_async(shared, global, valid);
}
inline void commit_copies() { host::commit_copies(); }
template <int latest>
void wait_for_copies() {
  host::wait_for_copies(latest);
}

inline float fast_exp2(float x) { return std::exp2(x); }

template <class T>
std::uint32_t pack(float low, float high) {
  return std::bit_cast<std::uint16_t>(T(low)) | std::uint32_t{std::bit_cast<std::uint16_t>(T(high))} << 16;
}

}  // namespace trireme::gpu
