#include "src/app/command_table.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "src/app/commands/commands.hpp"
#include "src/app/job/job.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/nearest_name.hpp"

namespace trireme::app {
namespace {

/// All commands, in the order of every help. A parent command follows its subcommands.
constexpr Command command_table[] = {
    {.path = "corpus clean",
     .summary = "copy text, dropping short documents, duplicates and near duplicates",
     .ranks = Ranks::many,
     .function = corpus_clean_command},
    {.path = "corpus overlap",
     .summary = "count the n-grams of test sets that occur in text; copy it without them",
     .ranks = Ranks::many,
     .function = corpus_overlap_command},
    {.path = "corpus build",
     .summary = "tokenize text or JSON lines into a corpus",
     .ranks = Ranks::many,
     .function = corpus_build_command},
    {.path = "corpus inspect", .summary = "print the header of a corpus", .function = corpus_inspect_command},
    {.path = "corpus verify",
     .summary = "read an entire corpus and check it for damage",
     .ranks = Ranks::many,
     .function = corpus_verify_command},
    {.path = "corpus merge", .summary = "merge several corpora into one", .function = corpus_merge_command},
    {.path = "corpus split",
     .summary = "split a corpus into files for training, validation and test",
     .function = corpus_split_command},
    {.path = "corpus sample",
     .summary = "draw a random sample of a corpus' documents",
     .function = corpus_sample_command},
    {.path = "corpus samples", .summary = "print the samples that training reads", .function = corpus_samples_command},
    {.path = "corpus import",
     .summary = "import the token files of Megatron-LM or llm.c",
     .function = corpus_import_command},
    {.path = "corpus export", .summary = "export to the token files of Megatron-LM", .function = corpus_export_command},
    {.path = "corpus",
     .summary = "inspect, merge, split and exchange corpora",
     .description = "Tokenized corpora for training, in HDF5, and the text that they are built from."},
    {.path = "tokenizer train", .summary = "train a byte-level BPE on texts", .function = tokenizer_train_command},
    {.path = "tokenizer encode", .summary = "turn text into token ids", .function = tokenizer_encode_command},
    {.path = "tokenizer decode", .summary = "turn token ids into text", .function = tokenizer_decode_command},
    {.path = "tokenizer",
     .summary = "train a tokenizer; turn text into tokens and back",
     .description = "Trains tokenizers, and turns text into tokens and back."},
    {.path = "train",
     .summary = "train a model or resume",
     .ranks = Ranks::many,
     .function = train_command,
     .on_stop_signal = OnStopSignal::ask},
    {.path = "eval", .summary = "evaluate a trained model", .ranks = Ranks::many, .function = eval_command},
    {.path = "finetune",
     .summary = "fine-tune a pretrained model on RACE, SQuAD or a task of GLUE",
     .ranks = Ranks::many,
     .function = finetune_command,
     .on_stop_signal = OnStopSignal::ask},
    {.path = "generate",
     .summary = "continue texts with a trained model",
     .ranks = Ranks::many,
     .function = generate_command},
    {.path = "checkpoint inspect",
     .summary = "print the contents of a checkpoint",
     .function = checkpoint_inspect_command},
    {.path = "checkpoint verify",
     .summary = "read entire checkpoints and check them for damage",
     .function = checkpoint_verify_command},
    {.path = "checkpoint reshard",
     .summary = "rewrite a checkpoint as the files of another grid",
     .ranks = Ranks::many,
     .function = checkpoint_reshard_command},
    {.path = "checkpoint export",
     .summary = "export a model to Hugging Face's transformers",
     .ranks = Ranks::many,
     .function = checkpoint_export_command},
    {.path = "checkpoint import",
     .summary = "import the weights of another program as a checkpoint",
     .ranks = Ranks::many,
     .function = checkpoint_import_command},
    {.path = "checkpoint",
     .summary = "inspect, verify and exchange checkpoints",
     .description = "Operates on checkpoints. DIR is the folder given to --save, or the folder of one step in it.",
     .arguments = " [DIR]"},
    {.path = "plan", .summary = "predict a job on a cluster, and find its fastest layout", .function = plan_command},
    {.path = "megatron", .summary = "translate a launch command of Megatron-LM", .function = megatron_command},
    {.path = "report",
     .summary = "write a page on runs: curves, attempts, checkpoints, options",
     .function = report_command},
    {.path = "selftest",
     .summary = "test the nodes of a job before it trains",
     .ranks = Ranks::many,
     .function = selftest_command},
    {.path = "completion",
     .summary = "print a script that completes commands and options in bash or zsh",
     .function = completion_command},
    {.path = "man", .summary = "write the manual pages of all commands", .function = man_command},
    {.path = "info",
     .summary = "print version, backends, devices, libraries, ranks",
     .ranks = Ranks::many,
     .function = info_command},
};

/// Returns the subcommands of a parent command, by the last word of their paths.
std::vector<std::pair<std::string, const Command*>> commands_of(const Command& parent) {
  const std::string prefix = std::string(parent.path) + " ";
  std::vector<std::pair<std::string, const Command*>> commands;
  for (const Command& command : command_table) {
    if (command.path.starts_with(prefix)) commands.emplace_back(command.path.substr(prefix.size()), &command);
  }
  return commands;
}

std::vector<std::string> words_of(const Command& parent) {
  std::vector<std::string> words;
  for (const auto& [word, command] : commands_of(parent)) words.push_back(word);
  return words;
}

std::string parent_help(const Command& parent) {
  std::string text = fmt::format("Usage: trireme {} {} [OPTION]...{}\n{}\n\n", parent.path,
                                 fmt::join(words_of(parent), "|"), parent.arguments, parent.description);
  for (const auto& [word, command] : commands_of(parent)) text += fmt::format("  {:7}  {}\n", word, command->summary);
  return text + fmt::format("\ntrireme {} COMMAND --help explains each.\n", parent.path);
}

int run_parent_command(const Command& parent, const std::vector<std::string>& arguments) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  if (asks_for_help({word})) {
    if (mpi::launched_rank() == 0) std::fputs(parent_help(parent).c_str(), stdout);
    return 0;
  }
  const std::string command = fmt::format("trireme {}", parent.path);
  const std::vector<std::string> words = words_of(parent);
  TRIREME_CHECK(!word.empty(), ConfigError, "{} does nothing by itself: one of {} must follow\nsee {} --help", command,
                fmt::join(words, ", "), command);
  throw ConfigError("there is no command {} {}{}\nthe commands are {}; see {} --help", command, shortened(word),
                    suggestion(word, words, command + " "), fmt::join(words, ", "), command);
}

}  // namespace

Call find_command(const std::vector<std::string>& words) {
  for (const std::size_t length : {2, 1}) {
    if (words.size() < length) continue;
    const std::string path = length == 2 ? words[0] + " " + words[1] : words[0];
    const auto* command = std::ranges::find(command_table, path, &Command::path);
    if (command != std::end(command_table)) {
      return {command, {words.begin() + static_cast<std::ptrdiff_t>(length), words.end()}};
    }
  }
  return {};
}

int run_command(const Call& call, mpi::MpiEnvironment* environment) {
  if (call.command->function == nullptr) return run_parent_command(*call.command, call.arguments);
  return call.command->function(
      CommandLine(std::string(call.command->path), call.arguments, environment, call.command->ranks == Ranks::many));
}

ProgramManual program_manual() {
  ProgramManual manual{.version = version(), .commands = {}};
  for (const Command& command : command_table) {
    CommandManual entry;
    if (command.function != nullptr) {
      CommandLine line(std::string(command.path), {}, nullptr, command.ranks == Ranks::many);
      line.observe([&](const Options& options) { entry = options.manual(); });
      command.function(line);
    } else {
      entry.text = command.description;
      entry.subcommands = words_of(command);
    }
    entry.path = command.path;
    entry.summary = command.summary;
    manual.commands.push_back(std::move(entry));
  }
  return manual;
}

std::string program_help() {
  std::string text =
      "trireme: trains transformer language models on many GPUs or CPUs\n\n"
      "usage: trireme COMMAND [OPTIONS]        (mpirun -np N trireme ... or srun trireme ... for several ranks)\n\n";
  for (const Command& command : command_table) {
    const bool is_parallel = command.ranks == Ranks::many;
    if (!is_parallel && command.path.find(' ') != command.path.npos) continue;  // in the help of its parent command
    text += fmt::format("  {:18} {}{}\n", command.path, command.summary, is_parallel ? ", on one rank or many" : "");
  }
  return text +
         "\n'trireme COMMAND --help' explains each; 'trireme --version' prints the version. Exit codes: 0 done; 2 "
         "usage or\n"
         "configuration; 3 bad data or checkpoint; 4 environment; 5 input or output failed; 6 a rank died; 7 a rank "
         "hung;\n8 numerical; 9 a machine computed a wrong result; 75 stopped early, saved if --save was given: run "
         "the "
         "same "
         "command again,\nwith --load of the folder of --save.\n";
}

std::string unknown_command_text(const std::string& word) {
  std::vector<std::string> paths;
  for (const Command& command : command_table) paths.emplace_back(command.path);
  return fmt::format("there is no command '{}'{}", shortened(word), suggestion(word, paths));
}

}  // namespace trireme::app
