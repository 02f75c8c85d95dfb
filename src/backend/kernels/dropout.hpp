#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "src/backend/kernels/positions.hpp"
#include "src/base/hash.hpp"
#include "src/base/philox.hpp"

namespace trireme {

/// Site of a mask in the model; part of the key.
enum class DropoutSite : std::uint64_t {
  embedding = 0,
  attention_scores = 1,
  attention_output = 2,
  mlp_output = 3,
  router_input = 4  ///< RouterJitter
};

/// One dropout mask, as a pure function of global indices, so that it is the same on every grid and needs no storage.
///
/// Element (sample, row, column) is kept if its 16 random bits are below `keep_threshold`. It is then multiplied by
/// `scale` = 65536 / keep_threshold, the inverse of the exact keep probability. One Philox call yields the bits of
/// eight neighbouring columns: key = `key` (for attention: `head_key`), counter = (sample low, sample high, row, column
/// / 8), bits of column c = 16-bit half c % 2 of word c % 8 / 2. In hidden states row is the position and column the
/// channel; in attention row is the query's position and column the key's. `sample` is the number of the sample since
/// the start of training (consumed samples + index in the global batch).
struct Dropout {
  std::uint32_t keep_threshold = 65536;  ///< 65536 keeps everything: no dropout
  float scale = 1;
  std::uint64_t key = 0;
  const std::int64_t* samples = nullptr;  ///< device memory, [b]: the global number of each sample in the micro-batch
  Positions positions;                    ///< positions of the tensor's rows, for hidden states

  Dropout() = default;
  Dropout(double probability, std::uint64_t seed, int layer, DropoutSite site, const std::int64_t* sample_numbers)
      : keep_threshold(static_cast<std::uint32_t>(std::lround((1 - probability) * 65536))),
        scale(65536.0f / static_cast<float>(keep_threshold)),
        key(mix64(mix64(seed) + (static_cast<std::uint64_t>(layer) << 8 | static_cast<std::uint64_t>(site)))),
        samples(sample_numbers) {}

  constexpr bool enabled() const { return keep_threshold < 65536; }

  /// Key of one attention head; `head` counts over the full model's heads, not a rank's.
  constexpr std::uint64_t head_key(std::int64_t head) const {
    return splitmix64(key, static_cast<std::uint64_t>(head));
  }

  /// Random words of the eight columns [8 column_block, 8 column_block + 8).
  template <class Product = WideProduct>
  static constexpr std::array<std::uint32_t, 4> words(std::uint64_t key, std::int64_t sample, std::int64_t row,
                                                      std::int64_t column_block, Product product = {}) {
    return philox4x32(key,
                      {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
                       static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(column_block)},
                      product);
  }
  static constexpr std::uint32_t bits_of_column(const std::array<std::uint32_t, 4>& words, std::int64_t column) {
    return words[column % 8 / 2] >> (16 * (column % 2)) & 0xffffu;
  }
  /// Returns whether one element is kept: the rule above, element by element.
  constexpr bool keeps(std::uint64_t with_key, std::int64_t sample, std::int64_t row, std::int64_t column) const {
    return bits_of_column(words(with_key, sample, row, column / 8), column) < keep_threshold;
  }
};

}  // namespace trireme
