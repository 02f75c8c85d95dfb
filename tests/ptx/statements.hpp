#pragma once

#include "tests/ptx/module.hpp"

namespace trireme::ptx {

/// A piece of a function's body. Views refer to the text of the module.
struct Statement {
  enum class Kind { instruction, directive, label, begin, end };
  struct Address {
    std::string_view base;
    std::int64_t offset = 0;
  };
  Kind kind = Kind::instruction;
  int line = 0;
  std::string_view text;   ///< all of it
  std::string_view guard;  ///< predicate; empty: none
  bool negated = false;
  std::string_view opcode;  ///< with its suffixes; the name of a label or directive
  /// Operands other than addresses, in order; those of a list in braces, too.
  std::vector<std::string_view> words;
  int first_list = -1;  ///< the word with which the first list begins; -1: none
  std::vector<Address> addresses;
};

/// Splits a body. Throws PtxError for unknown forms.
std::vector<Statement> statements_of(std::string_view body, int line);

/// Words of a text: names and numbers, and single other characters. Comments are skipped.
std::vector<std::string_view> words_of(std::string_view text);

/// Reads a declaration of a variable, as words. Throws PtxError.
Variable variable_of(const std::vector<std::string_view>& words);
/// Size of a type as ".f32", in bytes.
std::size_t size_of_type(std::string_view type);
/// Reads an integer in decimal or hexadecimal, with or without a sign. Throws PtxError.
std::int64_t integer_of(std::string_view word);

/// "line 12: <text>: <reason>"
[[noreturn]] void refuse(int line, std::string_view text, const std::string& reason);

}  // namespace trireme::ptx
