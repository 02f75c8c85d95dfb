#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::data {

/// Whether byte `c` is one of ASCII's white space.
constexpr bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Whether byte `at` of `text` is ASCII white space behind a character that is none, as far as that can be told from
/// its last three bytes. No word of GPT-2's pattern holds the two together, none looks back.
bool is_word_cut(std::string_view text, std::size_t at);

}  // namespace trireme::data
