#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "src/app/manual/manual.hpp"
#include "src/app/manual/terminal_text.hpp"

namespace trireme::app {
namespace {

/// Returns the first words of all commands, in their order.
std::vector<std::string> first_words(const ProgramManual& manual) {
  std::vector<std::string> words;
  for (const CommandManual& command : manual.commands) {
    const std::string word = command.path.substr(0, command.path.find(' '));
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return words;
}

std::string flags_of(const CommandManual& command) {
  std::string flags;
  for (const OptionManual& option : command.options) {
    for (const std::string& name : option.names) flags += "--" + name + " ";
  }
  return flags + "--help";
}

/// Escapes a description for zsh's _arguments, where brackets and colons are special.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return single_quoted(result);
}

/// Returns zsh's completion of the values of an option: ":NAME:ACTION", "::NAME:ACTION" for one that may be left out.
std::string zsh_value(const OptionManual& option) {
  if (option.placeholder.empty()) return "";
  const std::vector<std::string> words = option.words();
  const std::string action = !words.empty()          ? fmt::format("({})", fmt::join(words, " "))
                             : !option.names_path()  ? " "
                             : option.names_folder() ? "_files -/"
                                                     : "_files";
  const std::string_view name = option.placeholder;
  const bool is_optional = name.starts_with('[');
  return fmt::format("{}{}:{}", is_optional ? "::" : ":",
                     zsh_text(is_optional ? name.substr(1, name.size() - 2) : name), action);
}

std::string zsh_arguments(const CommandManual& command) {
  std::string text = "_arguments";
  for (const OptionManual& option : command.options) {
    for (const std::string& name : option.names) {
      text += fmt::format(" \\\n        '*--{}[{}]{}'", name, zsh_text(option.help), zsh_value(option));
    }
  }
  return text + " \\\n        '--help[Print the help.]' \\\n        '*:file:_files'";
}

}  // namespace

std::string bash_completion(const ProgramManual& manual) {
  std::string subcommands, flags;
  std::map<std::string, std::string> values;  // a script's action, by "COMMAND --option"
  for (const CommandManual& command : manual.commands) {
    if (!command.subcommands.empty()) {
      subcommands += fmt::format("    '{}') words='{}' ;;\n", command.path, fmt::join(command.subcommands, " "));
      continue;
    }
    flags += fmt::format("    '{}') words='{}' ;;\n", command.path, flags_of(command));
    for (const OptionManual& option : command.options) {
      const std::vector<std::string> words = option.words();
      std::string action;
      if (!words.empty()) action = fmt::format("words='{}'", single_quoted(fmt::format("{}", fmt::join(words, " "))));
      if (option.names_path()) action = option.names_folder() ? "kind=directory" : "kind=file";
      if (action.empty() && !option.placeholder.empty()) action = "kind=none";
      if (action.empty()) continue;
      std::string patterns;
      for (const std::string& name : option.names) {
        patterns += fmt::format("{}'{} --{}'", patterns.empty() ? "" : " | ", command.path, name);
      }
      values[patterns] = action;
    }
  }
  std::string cases;
  for (const auto& [patterns, action] : values) cases += fmt::format("    {}) {} ;;\n", patterns, action);
  return fmt::format(R"(# Completion of trireme {} in bash: source <(trireme completion bash)
_trireme() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words= kind=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$word"))
    return
  fi
  case $command in
{}  esac
  if [ -n "$words" ]; then
    if [ "$COMP_CWORD" -eq 2 ]; then
      COMPREPLY=($(compgen -W "$words --help" -- "$word"))
      return
    fi
    command="$command ${{COMP_WORDS[2]}}" words=
  fi
  case "$command $previous" in
{}  esac
  if [ -z "$words$kind" ] && [[ $word == -* ]]; then
    case $command in
{}    esac
  fi
  case $kind in
    none) compopt +o default 2>/dev/null ;;
    directory)
      mapfile -t COMPREPLY < <(compgen -d -- "$word")
      compopt -o filenames 2>/dev/null
      ;;
    *) [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
  esac
}}
complete -o default -F _trireme trireme
)",
                     manual.version, fmt::join(first_words(manual), " "), subcommands, cases, flags);
}

std::string zsh_completion(const ProgramManual& manual) {
  std::string top, cases;
  for (const std::string& word : first_words(manual)) {
    const CommandManual* command = manual.find(word);
    top += fmt::format("      '{}:{}'\n", word, command == nullptr ? "" : zsh_text(command->summary));
  }
  for (const CommandManual& command : manual.commands) {
    if (command.path.find(' ') != std::string::npos) continue;
    if (command.subcommands.empty()) {
      cases += fmt::format("    {})\n      {}\n      ;;\n", command.path, zsh_arguments(command));
      continue;
    }
    std::string list, inner;
    for (const std::string& word : command.subcommands) {
      const CommandManual* subcommand = manual.find(command.path + " " + word);
      list += fmt::format(" '{}:{}'", word, zsh_text(subcommand->summary));
      inner += fmt::format("      {})\n        {}\n        ;;\n", word, zsh_arguments(*subcommand));
    }
    cases += fmt::format(
        "    {})\n      if (( CURRENT == 2 )); then\n        local -a subcommands=({} )\n"
        "        _describe subcommand subcommands\n        return\n      fi\n"
        "      shift words\n      (( CURRENT-- ))\n      case $words[1] in\n{}      esac\n      ;;\n",
        command.path, list, inner);
  }
  return fmt::format(R"(#compdef trireme
# Completion of trireme {} in zsh: trireme completion zsh >FOLDER_OF_FPATH/_trireme
_trireme() {{
  if (( CURRENT == 2 )); then
    local -a commands=(
{}    )
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
_trireme "$@"
)",
                     manual.version, top, cases);
}

}  // namespace trireme::app
