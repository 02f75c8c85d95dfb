#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::data {

/// Returns whether byte `c` is ASCII white space.
constexpr bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Returns whether byte `at` of `text` is ASCII white space after another character, judged by its last three bytes. No
/// word of GPT-2's pattern contains both, and none looks back.
bool is_word_cut(std::string_view text, std::size_t at);

}  // namespace trireme::data
