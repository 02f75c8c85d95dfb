#pragma once

#include <string>
#include <string_view>

namespace trireme::io {

/// The bytes that `characters`, UTF-8, spell by GPT-2's table, in which every byte is a printable character; empty
/// where one of them stands for no byte.
std::string bytes_of(std::string_view characters);
/// The inverse.
std::string spelling_of(std::string_view bytes);

}  // namespace trireme::io
