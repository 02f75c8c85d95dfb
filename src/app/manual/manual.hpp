#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::app {

/// Option of a command in the help.
struct OptionManual {
  std::vector<std::string> names;  ///< without hyphens; messages use the first
  std::string placeholder;         ///< empty for a flag
  std::string help;                ///< with the default
  std::string section;
  bool is_list = false;
  bool takes_path = false;

  /// Returns the words that the placeholder lists, as "fp32|bf16" does, without kinds of values, as in "P|inf".
  std::vector<std::string> words() const;
  /// Returns whether the value is the path of a file or folder.
  bool names_path() const;
  /// Returns whether the value is the path of a folder alone.
  bool names_folder() const;
};

/// Positional argument of a command.
struct ArgumentManual {
  std::string placeholder;
  std::string help;
};

/// A command in the help. A parent command has only subcommands.
struct CommandManual {
  std::string path;     ///< "train", "corpus build"
  std::string summary;  ///< a few words, for lists
  std::string text;     ///< a paragraph
  std::vector<ArgumentManual> arguments;
  std::vector<OptionManual> options;
  std::vector<std::string> subcommands;  ///< their last words
};

/// The program: its version and all of its commands.
struct ProgramManual {
  std::string version;
  std::vector<CommandManual> commands;

  const CommandManual* find(std::string_view path) const;
};

/// Returns a script that completes commands, options and their values in bash, without calling the program.
std::string bash_completion(const ProgramManual& manual);

/// Returns the same for zsh: a function `_trireme`, for a folder of its `fpath`.
std::string zsh_completion(const ProgramManual& manual);

/// Returns "trireme-corpus-build" for "corpus build", "trireme" for an empty path.
std::string man_page_name(std::string_view path);

/// Returns the page of a command for `man`, in section 1; of the program if `path` is empty.
std::string man_page(const ProgramManual& manual, std::string_view path);

}  // namespace trireme::app
