#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::app::megatron {

/// A word of a shell script with its quotes and variables, or an operator.
struct ShellToken {
  enum class Type { word, operation };
  Type type = Type::word;
  std::string text;  ///< operators: ; ;; & && | || ( ) and a line feed
  int line = 1;

  bool is(std::string_view operation) const { return type == Type::operation && text == operation; }
};

/// A here-document, the text between `<<END` and END, and the line that it begins at.
struct ShellDocument {
  std::string text;
  int line = 1;
};

/// Cuts a script for bash into words and operators. Comments, continued lines and redirections are left out, and
/// here-documents, which are appended to `documents` unless it is null. `NAME=( ... )` is one word. Throws ConfigError
/// where a quote or bracket does not close.
std::vector<ShellToken> shell_tokens(std::string_view text, int first_line = 1,
                                     std::vector<ShellDocument>* documents = nullptr);

/// Returns the place behind the quoted text, `${...}`, `$(...)`, `$((...))` or backquoted text that begins at `i`, or
/// behind the character there. Throws ConfigError where it does not close.
std::size_t behind_shell_unit(std::string_view text, std::size_t i, int depth = 0);

}  // namespace trireme::app::megatron
