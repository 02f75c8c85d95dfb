#include "src/app/megatron/script_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "src/app/megatron/shell_script.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/options/nearest_name.hpp"
#include "src/app/options/terminal_text.hpp"
#include "src/app/run_config/run_config.hpp"

namespace trireme::app::megatron {
namespace {

using Words = std::vector<std::string>;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Returns whether a word holds a variable without a value, or the output of a command.
bool is_open(const std::string& word) { return word.find_first_of("$`") != word.npos; }

/// Returns a word as a shell takes it.
std::string quoted(const std::string& word) {
  const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\;&|()<>*?[]{}!#~") == word.npos;
  return is_plain ? word : "'" + word + "'";
}

/// Returns the ranks that torchrun and its like start; nothing where the script does not say.
std::optional<int> ranks_of(const Words& launcher) {
  int ranks = 1;
  bool found = false;
  for (std::size_t i = 0; i < launcher.size(); ++i) {
    std::string name = launcher[i].substr(0, launcher[i].find('='));
    std::ranges::replace(name, '_', '-');
    if (name != "--nproc-per-node" && name != "--nnodes") continue;
    const bool is_inline = name.size() < launcher[i].size();
    const std::string value = is_inline                 ? launcher[i].substr(name.size() + 1)
                              : i + 1 < launcher.size() ? launcher[i + 1]
                                                        : "";
    int count = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), count);
    if (error != std::errc() || stop != value.data() + value.size() || count < 1 || count > 100000) return {};
    ranks *= count;
    found = found || name == "--nproc-per-node";
  }
  return found ? std::optional(ranks) : std::nullopt;
}

/// Report on one command of a script.
class LaunchReport {
 public:
  explicit LaunchReport(const Launch& launch) : launch_(launch) {}

  /// Appends to `report`.
  void write(ScriptReport& report) {
    const bool is_bert = contains(launch_.program, "bert");
    const Translation all = translate(launch_.arguments, options_);
    Words command = all.arguments;
    const bool has_type = std::ranges::find(command, "--model-type") != command.end();
    if (is_bert && !has_type) command.insert(command.begin(), {"--model-type", "bert"});
    report.text += fmt::format("{}, line {}\n", launch_.program, launch_.line);
    for (const Verdict& verdict : all.verdicts) report.text += line_of(verdict);
    check_program();
    check_values(command);
    const std::optional<int> ranks = ranks_of(launch_.launcher);
    report.text += fmt::format("\n{}trireme train", ranks ? fmt::format("mpirun -np {} ", *ranks) : "");
    for (const std::string& word : command) {
      report.text += (word.starts_with("--") ? " \\\n    " : " ") + (is_open(word) ? word : quoted(word));
    }
    report.text += "\n\n";
    for (const std::string& problem : problems_) report.text += problem + "\n";
    if (refused_ > 0) report.text += fmt::format("{} flags are refused\n", refused_);
    if (refused_ == 0 && problems_.empty()) report.text += "nothing is refused\n";
    report.runs = report.runs && refused_ == 0 && problems_.empty();
  }

 private:
  /// Returns "  --batch-size 4   works   --micro-batch-size 4".
  std::string line_of(const Verdict& verdict) {
    constexpr std::string_view kinds[] = {"works", "writes", "satisfied", "absent"};
    std::string_view kind = kinds[static_cast<int>(verdict.kind)];
    std::string text = verdict.words.empty() ? verdict.reason : fmt::format("{}", fmt::join(verdict.words, " "));
    const std::string name = verdict.flag.substr(2, verdict.flag.find_first_of("= ") - 2);
    if (verdict.row == nullptr && options_.spelling(name).empty()) {
      kind = "unknown";
      Words names;
      for_each_flag([&](const Flag& flag) { names.emplace_back(flag.name); });
      const std::string nearest = nearest_name(name, names);
      text = "in no release" + (nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest));
    }
    if (kind == "unknown" || kind == "absent") ++refused_;
    const std::string releases = verdict.row == nullptr ? "" : std::string(verdict.row->releases);
    return fmt::format("  {:<40} {:<12} {:<10} {}\n", shortened(verdict.flag), releases, kind, printable(text));
  }

  void check_program() {
    for (const char* other : {"t5", "ict", "vision", "retro", "mamba", "hybrid", "vlm"}) {
      if (contains(launch_.program, other)) {
        problems_.push_back(launch_.program + " trains a kind of model that is absent; nearest: a GPT or a BERT");
        return;
      }
    }
  }

  /// Checks the options as `train` does, those alone whose values are in the script.
  void check_values(const Words& command) {
    Words known;
    std::set<std::string> left_out;
    for (std::size_t i = 0; i < command.size();) {
      std::size_t end = i + 1;
      while (end < command.size() && !command[end].starts_with("--")) ++end;
      const auto first = command.begin() + static_cast<std::ptrdiff_t>(i);
      const auto last = command.begin() + static_cast<std::ptrdiff_t>(end);
      if (std::any_of(first, last, is_open)) {
        left_out.insert(first->substr(0, first->find('=')));
      } else if (!first->starts_with("--") || !options_.spelling(first->substr(2, first->find('=') - 2)).empty()) {
        known.insert(known.end(), first, last);
      }
      i = end;
    }
    try {
      options_.parse(known);
      if (left_out.empty()) reader_.settle(1);
    } catch (const Error& error) {
      add_problems(error.what(), left_out);
    }
  }

  /// Adds the lines of an error, without options that are missing here because their values are not in the script.
  void add_problems(const std::string& text, const std::set<std::string>& left_out) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      const bool is_missing = line.ends_with(" must be given") && left_out.contains(line.substr(0, line.find(' ')));
      if (!line.starts_with("see ") && !is_missing) problems_.push_back(with_flags(line));
      begin = end + 1;
    }
  }

  const Launch& launch_;
  Options options_{"trireme train", ""};
  RunConfigReader reader_{options_};
  Words problems_;
  int refused_ = 0;
};

}  // namespace

ScriptReport report_on_script(std::string_view script, const std::string& name) {
  const ShellScript content = read_shell_script(script);
  TRIREME_CHECK(!content.launches.empty(), ConfigError,
                "{} has no command of pretrain_gpt.py, pretrain_bert.py or another program of training{}", name,
                content.sourced.empty() ? "" : "; it may be in the script that it sources: " + content.sourced.front());
  ScriptReport report{.text = {}, .runs = true};
  for (const Launch& launch : content.launches) LaunchReport(launch).write(report);
  if (!content.unknown.empty()) {
    report.text += fmt::format("without a value in the script: {}\n", fmt::join(content.unknown, ", "));
  }
  for (const std::string& sourced : content.sourced) report.text += fmt::format("not read: {}\n", sourced);
  return report;
}

}  // namespace trireme::app::megatron
