#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// Decodes `characters`, UTF-8, by GPT-2's table, which maps every byte to a printable character; empty if one maps to
/// no byte.
std::string bytes_of(std::string_view characters);
/// The inverse.
std::string spelling_of(std::string_view bytes);

}  // namespace trireme::data
