#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::app {

/// Option of a command, as its help describes it.
struct OptionManual {
  std::vector<std::string> names;  ///< without hyphens; the first is the one that messages use
  std::string placeholder;         ///< empty for a flag
  std::string help;                ///< with the default
  std::string section;
  bool is_list = false;
  bool takes_path = false;

  /// Returns the words that the option takes, where its placeholder lists them ("fp32|bf16"); else nothing.
  std::vector<std::string> words() const;
};

/// Argument of a command without a name.
struct ArgumentManual {
  std::string placeholder;
  std::string help;
};

/// A command as its help describes it. A parent command has subcommands and nothing else.
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

  /// Returns the command of a path, null if there is none.
  const CommandManual* find(std::string_view path) const;
};

/// Returns a script that lets bash complete commands, options and their values. Sourced, it asks nothing of the
/// program.
std::string bash_completion(const ProgramManual& manual);

/// Returns the same for zsh: a function `_trireme`, for a folder of its `fpath`.
std::string zsh_completion(const ProgramManual& manual);

/// Returns "trireme-corpus-build" of "corpus build", "trireme" of no command.
std::string man_page_name(std::string_view path);

/// Returns the page of a command for `man`, in section 1; of the program where `path` is empty.
std::string man_page(const ProgramManual& manual, std::string_view path);

}  // namespace trireme::app
