#include "src/app/commands/megatron/launch_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <optional>

#include "src/app/commands/commands.hpp"
#include "src/app/commands/eval/eval_options.hpp"
#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/commands/generate/generate_options.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/options/nearest_name.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::app::megatron {
namespace {

using Words = std::vector<std::string>;

/// Words of a launch, split at the program.
struct Launch {
  Words launcher;       ///< torchrun, deepspeed or python, with its options
  std::string program;  ///< pretrain_gpt.py
  Words arguments;
};

bool begins_with_one_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view begin) { return name.starts_with(begin); });
}

bool generates(std::string_view program) {
  return begins_with_one_of(program, {"generate_samples", "run_text_generation", "generate_text",
                                      "gpt_static_inference", "gpt_dynamic_inference"});
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Launch split_launch(const Words& words) {
  const auto is_program = [](const std::string& word) {
    const std::string name = file_name(word);
    return name.ends_with(".py") &&
           (begins_with_one_of(name, {"pretrain", "train", "finetune", "main.py"}) || generates(name));
  };
  const auto program = std::ranges::find_if(words, is_program);
  TRIREME_CHECK(program != words.end(), ConfigError,
                "no word is a program of Megatron-LM, such as pretrain_gpt.py or tasks/main.py: {}",
                shortened(fmt::format("{}", fmt::join(words, " "))));
  return {{words.begin(), program}, file_name(*program), {program + 1, words.end()}};
}

/// Returns the number of ranks that torchrun, deepspeed or a similar launcher starts; nothing if it is not given.
std::optional<int> ranks_of(const Words& launcher) {
  std::int64_t ranks = 1;
  bool found = false;
  for (std::size_t i = 0; i < launcher.size(); ++i) {
    std::string name = launcher[i].substr(0, launcher[i].find('='));
    std::ranges::replace(name, '_', '-');
    const bool is_per_node = name == "--nproc-per-node" || name == "--num-gpus";
    if (!is_per_node && name != "--nnodes" && name != "--num-nodes") continue;
    const bool is_inline = name.size() < launcher[i].size();
    const std::string value = is_inline                 ? launcher[i].substr(name.size() + 1)
                              : i + 1 < launcher.size() ? launcher[i + 1]
                                                        : "";
    const int count = parse_number<int>(value).value_or(0);
    if (count < 1 || count > 100000) return {};
    ranks = std::min<std::int64_t>(ranks * count, max_ranks + 1);
    found = found || is_per_node;
  }
  return found && ranks <= max_ranks ? std::optional(static_cast<int>(ranks)) : std::nullopt;
}

/// Returns the value of `flag` on a command line; empty if it is absent.
std::string value_of(const Words& words, const std::string& flag) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
  }
  return "";
}

std::string command_of(const Launch& launch) {
  if (generates(launch.program)) return "generate";
  const std::string task = value_of(launch.arguments, "--task");
  if (task == "LAMBADA" || task == "WIKITEXT103") return "eval";
  return task.empty() ? "train" : "finetune";
}

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

  /// Checks the parsed values without reading files, as on `ranks` ranks, or else as many as the batch sizes imply.
  void check(std::optional<int> ranks) {
    if (eval_) eval_->check(options_);
    if (task_) task_->check(options_);
    if (!reader_ || task_ || options_.given("use-checkpoint-args")) return;
    reader_->settle(std::max(ranks ? *ranks / model_ranks() : implied_data_ranks(), 1));
  }
  int model_ranks() const {
    if (!reader_) return 1;
    const GridOptions& grid = reader_->parsed().parallel.grid;
    std::int64_t ranks = 1;
    for (const int size : {grid.tensor, grid.pipeline, grid.context}) {
      ranks = std::min<std::int64_t>(ranks * size, max_ranks + 1);
    }
    return static_cast<int>(ranks);
  }

 private:
  int implied_data_ranks() const {
    const BatchOptions& batch = reader_->parsed().batch;
    if (!batch.global_batch_size || !batch.micro_batches) return 1;
    const std::int64_t ranks = *batch.global_batch_size / *batch.micro_batches / batch.micro_batch_size;
    return static_cast<int>(std::min<std::int64_t>(ranks, max_ranks));
  }

  Options options_;
  std::optional<GenerateOptions> generate_;
  std::optional<EvalOptions> eval_;
  std::optional<TaskOptions> task_;
  std::optional<RunConfigReader> reader_;
};

/// Makes the report on a launch.
class Reporter {
 public:
  explicit Reporter(const Launch& launch) : launch_(launch), command_(command_of(launch)), command_options_(command_) {}

  LaunchReport run() {
    const bool is_bert = launch_.program.find("bert") != std::string::npos && command_ == "train";
    const Translation all = translate(launch_.arguments, command_options_.options(), command_);
    Words command = all.arguments;
    const bool has_type = std::ranges::find(command, "--model-type") != command.end();
    if (is_bert && !has_type) command.insert(command.begin(), {"--model-type", "bert"});
    std::string text = shortened(launch_.program) + "\n";
    for (const Verdict& verdict : all.verdicts) text += line_of(verdict);
    check_program();
    const std::optional<int> ranks = ranks_of(launch_.launcher);
    if (problems_.empty()) check_values(command, ranks);
    text += fmt::format("\n{}trireme {}", ranks ? fmt::format("mpirun -np {} ", *ranks) : "", command_);
    for (const std::string& word : command) text += (word.starts_with("--") ? " \\\n    " : " ") + shell_word(word);
    text += "\n\n";
    for (const std::string& note : notes_) text += note + "\n";
    for (const std::string& problem : problems_) text += problem + "\n";
    const bool runs = refused_ == 0 && problems_.empty();
    if (refused_ > 0) text += fmt::format("{} {} refused\n", counted(refused_, "flag"), refused_ == 1 ? "is" : "are");
    if (runs) text += "nothing is refused\n";
    return {std::move(text), runs};
  }

 private:
  /// Returns "  --batch-size 4   works   --micro-batch-size 4".
  std::string line_of(const Verdict& verdict) {
    constexpr std::string_view kinds[] = {"works", "writes", "satisfied", "absent"};
    std::string_view kind = kinds[static_cast<int>(verdict.kind)];
    std::string text = verdict.words.empty() ? verdict.reason : fmt::format("{}", fmt::join(verdict.words, " "));
    if (verdict.row == nullptr) {
      const std::string name = verdict.flag.substr(2, verdict.flag.find_first_of("= ") - 2);
      if (command_options_.options().spelling(name).empty()) {
        kind = "unknown";
        Words names;
        for (const Flag& flag : all_flags()) names.emplace_back(flag.name);
        text = "in no release that this program knows" + suggestion(name, names, "--");
      }
    }
    if (kind == "unknown" || kind == "absent") ++refused_;
    const std::string releases = verdict.row == nullptr ? "" : std::string(verdict.row->releases);
    return fmt::format("  {:<40} {:<12} {:<10} {}\n", shortened(verdict.flag), releases, kind, printable(text));
  }

  void check_program() {
    for (const char* other :
         {"t5", "ict", "vision", "retro", "mamba", "hybrid", "vlm", "llava", "prefix_lm", "finetune_t0"}) {
      if (launch_.program.find(other) != std::string::npos) {
        problems_.push_back(shortened(launch_.program) +
                            " trains a kind of model that is absent; nearest: a GPT or a BERT");
        return;
      }
    }
    // Programs of Pai-Megatron-Patch with parts that no flag names.
    for (const char* own : {"baichuan", "bloom", "chatglm", "falcon", "galactica", "starcoder"}) {
      if (launch_.program.starts_with("pretrain_megatron_") && launch_.program.find(own) != std::string::npos) {
        problems_.push_back(shortened(launch_.program) +
                            " trains a model that its flags do not describe; nearest: pretrain_gpt.py, or --model");
      }
    }
    const std::string task = value_of(launch_.arguments, "--task");
    constexpr std::string_view tasks[] = {"", "LAMBADA", "MNLI", "QQP", "RACE", "SQUAD", "WIKITEXT103"};
    if (std::ranges::find(tasks, task) == std::end(tasks)) {
      problems_.push_back(fmt::format("the task {} is absent; nearest: RACE, MNLI, QQP, SQUAD, LAMBADA or WIKITEXT103",
                                      shortened(task)));
    }
  }

  /// Checks the options as the command does, except for files. Skips unknown flags and their values.
  void check_values(const Words& command, std::optional<int> ranks) {
    Options& options = command_options_.options();
    Words known;
    bool is_known = true;
    for (const std::string& word : command) {
      if (word.starts_with("--")) is_known = !options.spelling(word.substr(2, word.find('=') - 2)).empty();
      if (is_known) known.push_back(word);
    }
    try {
      options.parse(known);
      const int model_ranks = command_options_.model_ranks();
      if (ranks && *ranks % model_ranks != 0) {
        notes_.push_back(fmt::format("start a multiple of {} ranks, which share a model, not {}", model_ranks, *ranks));
      }
      if (refused_ == 0) command_options_.check(ranks);
    } catch (const Error& error) {
      for (const std::string_view line : split(error.what(), '\n')) {
        if (!line.starts_with("see ")) problems_.push_back(with_flags(std::string(line)));
      }
    }
  }

  const Launch& launch_;
  std::string command_;
  CommandOptions command_options_;
  Words problems_;
  Words notes_;  // advice on a valid command
  int refused_ = 0;
};

}  // namespace

LaunchReport report_on_launch(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    for (const unsigned char c : word) {
      TRIREME_CHECK((c >= 0x20 && c != 0x7F) || c == '\t' || c == '\n', ConfigError,
                    "a word has a control character, \\x{:02x}: {}", c, shortened(word));
    }
  }
  const Launch launch = split_launch(words);
  return Reporter(launch).run();
}

}  // namespace trireme::app::megatron

namespace trireme::app {

int megatron_command(const CommandLine& line) {
  std::vector<std::string> words = line.arguments();
  Options options(line.command(),
                  "Translates a launch command of Megatron-LM, flag by flag, and prints the equivalent command of this "
                  "program. Runs nothing. The exit code is 2 if a flag is refused.");
  options.add_arguments("WORD", &words,
                        "Words of the launch: torchrun --nproc_per_node 8 pretrain_gpt.py --lr 1e-4 ...");
  if ((words.empty() || asks_for_help({words.front()})) && !line.read(options)) return 0;
  const megatron::LaunchReport report = megatron::report_on_launch(words);
  std::fwrite(report.text.data(), 1, report.text.size(), stdout);
  return static_cast<int>(report.runs ? ExitCode::success : ExitCode::usage);
}

}  // namespace trireme::app
