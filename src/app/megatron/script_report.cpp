#include "src/app/megatron/script_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>

#include "src/app/commands/eval/eval_options.hpp"
#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/commands/generate/generate_options.hpp"
#include "src/app/megatron/open_parts.hpp"
#include "src/app/megatron/shell_script.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/options/nearest_name.hpp"
#include "src/app/options/terminal_text.hpp"
#include "src/app/run_config/run_config.hpp"

namespace trireme::app::megatron {
namespace {

using Words = std::vector<std::string>;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

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

/// Value of `flag` on a command line; empty where it is not there.
std::string value_of(const Words& words, const std::string& flag) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
  }
  return "";
}

/// Returns the command of this program that does what a script's program does.
std::string command_of(const Launch& launch) {
  if (launch.is_generation()) return "generate";
  const std::string task = value_of(launch.arguments, "--task");
  if (task == "LAMBADA" || task == "WIKITEXT103") return "eval";
  return task.empty() ? "train" : "finetune";
}

/// Options of a command, as it declares them.
class CommandOptions {
 public:
  explicit CommandOptions(const std::string& command) : options_("trireme " + command, "") {
    if (command == "generate") {
      generate_.emplace().declare(options_);
    } else if (command == "eval") {
      eval_.emplace().declare(options_);
    } else if (command == "finetune") {
      task_.emplace().declare(options_);
      reader_.emplace(options_, RunKind::task);
    } else {
      reader_.emplace(options_);
    }
  }
  Options& options() { return options_; }

  /// Checks values that were parsed as far as it needs no file; those of `train` on `ranks` ranks.
  void check(int ranks) {
    if (eval_) eval_->zero_shot.check(options_, eval_->task);
    if (task_) task_->check(options_);
    if (!reader_ || task_ || options_.given("use-checkpoint-args")) return;
    reader_->settle(std::max(ranks / model_ranks(), 1));
  }
  int model_ranks() const {
    if (!reader_) return 1;
    const GridOptions& grid = reader_->parsed().parallel.grid;
    return grid.tensor * grid.pipeline * grid.context;
  }

 private:
  Options options_;
  std::optional<GenerateOptions> generate_;
  std::optional<EvalOptions> eval_;
  std::optional<TaskOptions> task_;
  std::optional<RunConfigReader> reader_;
};

/// Report on one command of a script.
class LaunchReport {
 public:
  explicit LaunchReport(const Launch& launch)
      : launch_(launch), command_(command_of(launch)), command_options_(command_) {}

  /// Appends to `report`.
  void write(ScriptReport& report) {
    const bool is_bert = contains(launch_.program, "bert") && command_ == "train";
    const Translation all = translate(launch_.arguments, command_options_.options(), command_);
    Words command = all.arguments;
    const bool has_type = std::ranges::find(command, "--model-type") != command.end();
    if (is_bert && !has_type) command.insert(command.begin(), {"--model-type", "bert"});
    report.text += fmt::format("{}, line {}\n", shortened(launch_.program), launch_.line);
    for (const Verdict& verdict : all.verdicts) report.text += line_of(verdict);
    check_program();
    const std::optional<int> ranks = ranks_of(launch_.launcher);
    if (problems_.empty()) check_values(command, ranks);
    report.text += fmt::format("\n{}trireme {}", ranks ? fmt::format("mpirun -np {} ", *ranks) : "", command_);
    for (const std::string& word : command) {
      report.text += (word.starts_with("--") ? " \\\n    " : " ") + pasted(word);
    }
    report.text += "\n\n";
    for (const std::string& note : notes_) report.text += note + "\n";
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
    if (verdict.row == nullptr && is_open(name)) {
      kind = "unknown";
      text = "is made by a command or a variable without a value; write the flag in its place";
    } else if (verdict.row == nullptr && command_options_.options().spelling(name).empty()) {
      kind = "unknown";
      Words names;
      for_each_flag([&](const Flag& flag) { names.emplace_back(flag.name); });
      const std::string nearest = nearest_name(name, names);
      text = "in no release" + (nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest));
    }
    if (kind == "unknown" || kind == "absent") ++refused_;
    const std::string releases = verdict.row == nullptr ? "" : std::string(verdict.row->releases);
    return fmt::format("  {:<40} {:<12} {:<10} {}\n", shortened(written(verdict.flag)), releases, kind,
                       printable(written(text)));
  }

  void check_program() {
    for (const char* other : {"t5", "ict", "vision", "retro", "mamba", "hybrid", "vlm"}) {
      if (contains(launch_.program, other)) {
        problems_.push_back(shortened(launch_.program) +
                            " trains a kind of model that is absent; nearest: a GPT or a BERT");
        return;
      }
    }
    const std::string task = value_of(launch_.arguments, "--task");
    constexpr std::string_view tasks[] = {"", "LAMBADA", "MNLI", "QQP", "RACE", "SQUAD", "WIKITEXT103"};
    if (std::ranges::find(tasks, task) == std::end(tasks) && !is_open(task)) {
      problems_.push_back(fmt::format("the task {} is absent; nearest: RACE, MNLI, QQP, SQUAD, LAMBADA or WIKITEXT103",
                                      shortened(task)));
    }
  }

  /// Checks the options as the command does. Those whose values are not in the script are left out, but for paths,
  /// which a check without files does not read.
  void check_values(const Words& command, std::optional<int> ranks) {
    Options& options = command_options_.options();
    Words known;
    std::set<std::string> left_out;
    for (std::size_t i = 0; i < command.size();) {
      const auto first = command.begin() + static_cast<std::ptrdiff_t>(i);
      const std::string own =
          first->starts_with("--") ? options.spelling(first->substr(2, first->find('=') - 2)) : std::string();
      const bool is_alone = !own.empty() && !options.takes_value(own);
      std::size_t end = i + 1;
      while (!is_alone && end < command.size() && !command[end].starts_with("--")) ++end;
      const auto last = command.begin() + static_cast<std::ptrdiff_t>(end);
      if (std::any_of(first, last, is_open) && (own.empty() || is_open(*first) || !options.takes_path(own))) {
        left_out.insert(first->substr(0, first->find('=')));
      } else if (!first->starts_with("--") || !own.empty()) {
        std::transform(first, last, std::back_inserter(known), written);
      }
      i = end;
    }
    try {
      options.parse(known);
      const bool is_whole = left_out.empty() && refused_ == 0;
      const int model_ranks = command_options_.model_ranks();
      if (ranks && *ranks % model_ranks != 0) {
        notes_.push_back(fmt::format("start a multiple of {} ranks, which share a model, not {}", model_ranks, *ranks));
      }
      if (is_whole) command_options_.check(ranks.value_or(model_ranks));
    } catch (const Error& error) {
      add_problems(error.what(), left_out);
    }
  }

  /// Adds the lines of an error, without options that are missing here because their values are not in the script.
  void add_problems(const std::string& text, const std::set<std::string>& left_out) {
    const bool has_open_options =
        std::ranges::any_of(left_out, [](const std::string& word) { return !word.starts_with("--"); });
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      const bool is_missing =
          line.ends_with(" must be given") && (has_open_options || left_out.contains(line.substr(0, line.find(' '))));
      if (!line.starts_with("see ") && !is_missing) problems_.push_back(with_flags(line));
      begin = end + 1;
    }
  }

  const Launch& launch_;
  std::string command_;
  CommandOptions command_options_;
  Words problems_;
  Words notes_;  // advice about a command that runs
  int refused_ = 0;
};

/// Returns those of `names`, variables or commands, that stand in a launch of the script.
Words used_in(const std::vector<Launch>& launches, const std::set<std::string>& names, bool are_variables) {
  Words used;
  for (const std::string& name : names) {
    const auto holds = [&](const std::string& word) {
      return are_variables ? contains(word, "$" + name) || contains(word, "${" + name) : contains(word, name);
    };
    const bool is_used = std::ranges::any_of(launches, [&](const Launch& launch) {
      return std::ranges::any_of(launch.arguments, holds) || std::ranges::any_of(launch.launcher, holds);
    });
    if (is_used) used.push_back(name);
  }
  return used;
}

}  // namespace

ScriptReport report_on_script(std::string_view script, const std::string& name) {
  const ShellScript content = read_shell_script(script);
  TRIREME_CHECK(!content.launches.empty(), ConfigError,
                "{} has no command of pretrain_gpt.py, pretrain_bert.py or another program of Megatron-LM{}", name,
                content.sourced.empty() ? "" : "; it may be in the script that it sources: " + content.sourced.front());
  ScriptReport report{.text = {}, .runs = true};
  for (const Launch& launch : content.launches) LaunchReport(launch).write(report);
  if (const Words unknown = used_in(content.launches, content.unknown, true); !unknown.empty()) {
    report.text +=
        fmt::format("without a value in the script: {}\n", printable(fmt::format("{}", fmt::join(unknown, ", "))));
  }
  for (const std::string& command : used_in(content.launches, content.commands, false)) {
    report.text += fmt::format("not run: {}; write its output in its place\n", shortened(command));
  }
  for (const std::string& sourced : content.sourced) report.text += fmt::format("not read: {}\n", shortened(sourced));
  return report;
}

}  // namespace trireme::app::megatron
