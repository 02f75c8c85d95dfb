#include <utility>

#include "src/app/megatron/translation.hpp"

namespace trireme::app::megatron {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

/// Translates the lines "name = value" of a file of options. Adds verdicts to `all`, and refusals to `problems`.
Lines translated_lines(const Lines& lines, const Options& options, const std::string& command, Translation& all,
                       std::vector<std::string>& problems) {
  std::vector<std::string> words;
  Lines result;
  for (const auto& [name, value] : lines) {
    const std::string own = options.spelling(hyphenated(name));
    const Flag* row = find_flag(hyphenated(name));
    const bool is_flag = own.empty() ? row != nullptr && row->values == Values::none : !options.takes_value(own);
    if (is_flag && value == "true") {
      words.push_back("--" + name);
    } else if (is_flag || value.empty() || value.starts_with("--")) {
      if (own.empty() && value == "false") continue;
      result.emplace_back(own.empty() ? name : own, value);
    } else {
      words.insert(words.end(), {"--" + name, value});
    }
  }
  Translation translation = translate(words, options, command);
  if (std::string refusal = translation.refusal(); !refusal.empty()) problems.push_back(std::move(refusal));
  all.verdicts.insert(all.verdicts.end(), translation.verdicts.begin(), translation.verdicts.end());
  all.model_words.insert(all.model_words.end(), translation.model_words.begin(), translation.model_words.end());
  const std::vector<std::string>& there = translation.arguments;
  for (std::size_t i = 0; i < there.size(); ++i) {
    const std::string name = there[i].substr(2);
    const std::size_t first = i + 1;
    while (i + 1 < there.size() && !there[i + 1].starts_with("--")) result.emplace_back(name, there[++i]);
    if (i + 1 == first) result.emplace_back(name, "true");
  }
  return result;
}

}  // namespace

std::optional<Translation> read(const CommandLine& line, Options& options) {
  const std::string command = line.command().substr(line.command().rfind(' ') + 1);
  Translation translation = translate(line.arguments(), options, command);
  std::vector<std::string> problems;
  if (std::string refusal = translation.refusal(); !refusal.empty()) problems.push_back(std::move(refusal));
  options.translate_files([&](const Lines& lines, std::vector<std::string>& of_file) {
    return translated_lines(lines, options, command, translation, of_file);
  });
  if (!line.read(options, translation.arguments, std::move(problems))) return {};
  return translation;
}

}  // namespace trireme::app::megatron
