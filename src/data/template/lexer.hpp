#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::data::jinja {

/// Piece of a template.
struct Token {
  enum class Type { data, print_begin, print_end, tag_begin, tag_end, name, text, integer, number, sign, end };
  Type type = Type::end;
  std::string text;  ///< content of `data` and `text`, otherwise the spelling
  int line = 1;
};

/// Error at a line of a template: "line 3: ...".
[[noreturn]] void refuse(int line, const std::string& message);

/// Cuts a template into tokens, the last of type `end`, with Jinja's options trim_blocks and lstrip_blocks, as
/// transformers sets them. Throws DataError naming the line.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace trireme::data::jinja
