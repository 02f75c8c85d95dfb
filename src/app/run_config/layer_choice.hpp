#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::app {

/// Layers that an option of Megatron-LM chooses, as moe_freq_type reads them.
struct LayerChoice {
  std::optional<std::int64_t> frequency;  ///< N
  std::string digits;                     ///< without N: a 0 or 1 for each layer
};

/// Reads the layers that `option` chooses in a model of `count` layers: N, at least 1, or a Python list of 0 and 1 with
/// sums and multiples of lists: [1,1,0], [1]*3+[0], ([1,0])*2. Throws ConfigError for other texts and other lengths.
LayerChoice read_layer_choice(std::string_view option, const std::string& text, int count);

/// Returns `text` without white space.
std::string without_blanks(std::string text);

}  // namespace trireme::app
