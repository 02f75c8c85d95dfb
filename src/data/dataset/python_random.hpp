#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "src/base/check.hpp"
#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {

/// Python's `random.Random(seed)`, draw for draw, to reproduce the samples of Python programs.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed) {
    Key key{seed};
    generator_.seed(key);
  }

  /// `random()`: uniform in [0, 1).
  double random() { return uniform53(generator_); }

  /// `randrange(bound)`: uniform in [0, bound), bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    for (;;) {
      const auto draw = static_cast<std::uint32_t>(generator_()) >> (32 - std::bit_width(bound));
      if (draw < bound) return draw;
    }
  }

  /// `sample(range(size), count)`: distinct numbers in the order of the draws. ConfigError unless count <= size.
  std::vector<std::int64_t> sample(std::int64_t size, std::int64_t count) {
    TRIREME_CHECK(count >= 0 && count <= size && size <= UINT32_MAX, ConfigError, "a sample of {} from {}", count,
                  size);
    std::vector<std::int64_t> result;
    // Python draws from a shrinking list where that is smaller than a set of the chosen.
    double set_size = 21;
    if (count > 5) set_size += std::pow(4, std::ceil(std::log(static_cast<double>(count) * 3) / std::log(4.0)));
    if (static_cast<double>(size) <= set_size) {
      std::vector<std::int64_t> pool(static_cast<std::size_t>(size));
      std::iota(pool.begin(), pool.end(), 0);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t j = below(static_cast<std::uint32_t>(size - i));
        result.push_back(pool[j]);
        pool[j] = pool[static_cast<std::size_t>(size - i - 1)];
      }
      return result;
    }
    std::set<std::int64_t> chosen;
    while (std::ssize(result) < count) {
      const auto draw = static_cast<std::int64_t>(below(static_cast<std::uint32_t>(size)));
      if (chosen.insert(draw).second) result.push_back(draw);
    }
    return result;
  }

 private:
  /// Fills the generator's state from the 32-bit words of a seed: `init_by_array` of the Mersenne Twister's authors.
  struct Key {
    using result_type = std::uint32_t;
    std::uint64_t seed;

    template <class Iterator>
    void generate(Iterator begin, Iterator end) {
      constexpr std::uint32_t n = std::mt19937::state_size;
      const std::uint32_t words[] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
      const std::uint32_t length = words[1] == 0 ? 1 : 2;
      std::vector<std::uint32_t> state(n);
      state[0] = 19650218;
      for (std::uint32_t i = 1; i < n; ++i) state[i] = 1812433253u * (state[i - 1] ^ state[i - 1] >> 30) + i;
      std::uint32_t i = 1;
      const auto mixed = [&](std::uint32_t factor) { return state[i] ^ (state[i - 1] ^ state[i - 1] >> 30) * factor; };
      const auto advance = [&] {
        if (++i < n) return;
        state[0] = state[n - 1];
        i = 1;
      };
      for (std::uint32_t k = 0; k < n; ++k) {
        state[i] = mixed(1664525) + words[k % length] + k % length;
        advance();
      }
      for (std::uint32_t k = 1; k < n; ++k) {
        state[i] = mixed(1566083941) - i;
        advance();
      }
      state[0] = 0x80000000;
      std::copy_n(state.begin(), end - begin, begin);
    }
  };

  std::mt19937 generator_;
};

}  // namespace trireme::data
