#pragma once

#include <string>
#include <string_view>

namespace trireme::app::megatron {

/// Marks in a word around its open parts, variables and commands whose values the script does not have. A script has no
/// such characters: `read_shell_script` refuses them.
constexpr char open_bare = 1;    ///< begins a part that a shell would cut at the spaces of its value
constexpr char open_quoted = 2;  ///< begins a part in double quotes
constexpr char open_end = 3;

/// Returns whether a word has an open part.
bool is_open(std::string_view word);

/// Returns a word without marks, its open parts as the script has them.
std::string written(std::string_view word);

/// Returns a word to paste into a shell. Variables stay open. All else is inert in quotes, also a command whose output
/// the script uses: the shell executes nothing.
std::string pasted(std::string_view word);

}  // namespace trireme::app::megatron
