#include <algorithm>

#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/options.hpp"

namespace trireme::app {

CommandManual Options::manual() const {
  CommandManual manual{.path = command_.substr(std::min(command_.find(' ') + 1, command_.size())),
                       .summary = {},
                       .text = summary_,
                       .arguments = {},
                       .options = {},
                       .subcommands = {}};
  for (const Argument& argument : arguments_) manual.arguments.push_back({argument.placeholder, argument.help});
  // The options of all commands come last.
  for (std::size_t i = 1; i <= entries_.size(); ++i) {
    const bool is_last = i == entries_.size();
    const Entry& entry = entries_[is_last ? 0 : i];
    const std::string value = entry.required ? "required" : entry.default_text;  // a default cannot apply
    manual.options.push_back({.names = entry.names,
                              .placeholder = entry.placeholder,
                              .help = entry.help + (value.empty() ? "" : fmt::format(" [{}]", value)),
                              .section = is_last ? "General" : entry.section,
                              .is_list = entry.arity == Arity::list,
                              .takes_path = names_files(entry)});
  }
  return manual;
}

std::string Options::help() const {
  const CommandManual content = manual();
  std::string text = "Usage: " + command_;
  for (const ArgumentManual& argument : content.arguments) text += " " + argument.placeholder;
  text += " [OPTION]...\n" + wrapped(content.text) + "\n";
  if (!content.arguments.empty()) text += "\n";
  for (const ArgumentManual& argument : content.arguments) text += help_line(argument.placeholder, argument.help);
  std::string section;
  for (const OptionManual& option : content.options) {
    if (option.section != section) text += "\n" + (section = option.section) + ":\n";
    std::string left;
    for (const std::string& name : option.names) left += (left.empty() ? "--" : ", --") + name;
    if (!option.placeholder.empty()) left += " " + option.placeholder + (option.is_list ? "..." : "");
    text += help_line(left, option.help);
  }
  return text + help_line("--help", "Print this and exit.");
}

}  // namespace trireme::app
