#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "src/app/manual/manual.hpp"
#include "src/base/text.hpp"

namespace trireme::app {
namespace {

/// Escapes a text for roff: no line starts a request, and hyphens are those of the command line.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool begins = result.empty() || result.back() == '\n';
    if (begins && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '|') {
      result += "|\\:";  // lists of choices may be longer than a line
    } else {
      result += c;
    }
  }
  return result;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", roff(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", roff(text)); }

std::string head_of(const ProgramManual& manual, std::string_view path, std::string_view summary) {
  std::string title = man_page_name(path);
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(".TH \"{}\" 1 \"\" \"trireme {}\" \"Trireme\"\n.SH NAME\n{} \\- {}\n", roff(title),
                     roff(manual.version), roff(man_page_name(path)), roff(summary));
}

std::string references(const std::vector<std::string>& paths) {
  std::vector<std::string> pages;
  for (const std::string& path : paths) pages.push_back(bold(man_page_name(path)) + "(1)");
  return fmt::format(".SH SEE ALSO\n{}\n", fmt::join(pages, ", "));
}

std::string page_of_program(const ProgramManual& manual) {
  std::string text = head_of(manual, "", "train transformer language models on many GPUs or CPUs");
  text +=
      ".SH SYNOPSIS\n" + bold("trireme") + " " + italic("COMMAND") + " [" + italic("OPTION") + "]...\n.SH COMMANDS\n";
  std::vector<std::string> paths;
  for (const CommandManual& command : manual.commands) {
    if (!command.subcommands.empty()) continue;
    text += fmt::format(".TP\n{}\n{}\n", bold(command.path), roff(command.summary));
    paths.push_back(command.path);
  }
  return text + references(paths);
}

std::string page_of(const ProgramManual& manual, const CommandManual& command) {
  std::string text = head_of(manual, command.path, command.summary);
  text += ".SH SYNOPSIS\n" + bold("trireme " + command.path);
  for (const ArgumentManual& argument : command.arguments) text += " " + italic(argument.placeholder);
  text += fmt::format(" [{}]...\n.SH DESCRIPTION\n{}\n", italic("OPTION"), roff(command.text));
  for (const ArgumentManual& argument : command.arguments) {
    text += fmt::format(".TP\n{}\n{}\n", italic(argument.placeholder), roff(argument.help));
  }
  text += ".SH OPTIONS\n";
  std::string section;
  for (const OptionManual& option : command.options) {
    if (option.section != section) text += fmt::format(".SS {}\n", roff(section = option.section));
    std::vector<std::string> names;
    for (const std::string& name : option.names) names.push_back(bold("--" + name));
    text += fmt::format(".TP\n{}{}{}\n{}\n", fmt::join(names, ", "), option.placeholder.empty() ? "" : " ",
                        option.placeholder.empty() ? "" : italic(option.placeholder + (option.is_list ? "..." : "")),
                        roff(option.help));
  }
  return text + references({""});
}

}  // namespace

std::vector<std::string> OptionManual::words() const {
  if (placeholder.find('|') == std::string::npos) return {};
  constexpr std::string_view kinds[] = {"DIR", "FILE", "NAME", "P", "TFLOPS"};
  std::vector<std::string> words;
  for (const std::string_view word : split(placeholder, '|')) {
    if (std::ranges::find(kinds, word) == std::end(kinds)) words.emplace_back(word);
  }
  return words;
}

bool OptionManual::names_path() const { return takes_path || placeholder.find("FILE") != std::string::npos; }

bool OptionManual::names_folder() const {
  return names_path() && placeholder.starts_with("DIR") && placeholder.find("FILE") == std::string::npos;
}

const CommandManual* ProgramManual::find(std::string_view path) const {
  const auto found = std::ranges::find(commands, path, &CommandManual::path);
  return found == commands.end() ? nullptr : &*found;
}

std::string man_page_name(std::string_view path) {
  std::string name = path.empty() ? "trireme" : fmt::format("trireme-{}", path);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const ProgramManual& manual, std::string_view path) {
  if (path.empty()) return page_of_program(manual);
  return page_of(manual, *manual.find(path));
}

}  // namespace trireme::app
