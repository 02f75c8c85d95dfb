#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace trireme::data {

/// Uniform in [0, 1) with 53 bits of two draws: `random()` of NumPy's and Python's generators.
inline double uniform53(std::mt19937& generator) {
  const std::uint32_t high = static_cast<std::uint32_t>(generator()) >> 5;
  const std::uint32_t low = static_cast<std::uint32_t>(generator()) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

/// NumPy's `RandomState(seed)`, draw for draw, to reproduce Megatron-LM's shuffles.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : generator_(seed) {}

  /// `random()`: uniform in [0, 1) with 53 bits.
  double random() { return uniform53(generator_); }

  /// `randint(0, bound)`: uniform in [0, bound), bound > 0.
  std::uint64_t randint(std::uint64_t bound) { return interval(bound - 1); }

  /// `shuffle(items)`: for i from the last down to 1, swaps item i with item interval(i). The draws do not depend on
  /// the items, so they are made ahead in blocks, and the items, far apart in memory, are prefetched.
  template <class T>
  void shuffle(std::span<T> items) {
    std::array<std::size_t, 64> partners;
    for (std::size_t i = items.empty() ? 0 : items.size() - 1; i > 0;) {
      const std::size_t count = std::min(i, partners.size());
      for (std::size_t k = 0; k < count; ++k) {
        partners[k] = interval(i - k);
        __builtin_prefetch(&items[partners[k]], 1);
      }
      for (std::size_t k = 0; k < count; ++k) std::swap(items[i - k], items[partners[k]]);
      i -= count;
    }
  }

 private:
  std::uint32_t next32() { return static_cast<std::uint32_t>(generator_()); }

  /// Uniform in [0, max]: draws of as many bits as `max` has, until one is at most `max`.
  std::uint64_t interval(std::uint64_t max) {
    if (max == 0) return 0;
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
    for (;;) {
      std::uint64_t draw = next32();
      if (max > UINT32_MAX) draw = draw << 32 | next32();
      if (draw &= mask; draw <= max) return draw;
    }
  }

  std::mt19937 generator_;
};

}  // namespace trireme::data
