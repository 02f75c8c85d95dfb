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
     .overview = "copy text, dropping short and repeated documents, on one rank or many",
     .ranks = Ranks::many,
     .function = corpus_clean_command},
    {.path = "corpus overlap",
     .summary = "count the n-grams of test sets that occur in text; copy it without them",
     .overview = "count the n-grams of test sets that occur in text, on one rank or many",
     .ranks = Ranks::many,
     .function = corpus_overlap_command},
    {.path = "corpus build",
     .summary = "tokenize text or JSON lines into a corpus",
     .overview = "turn text into a tokenized corpus, on one rank or many",
     .ranks = Ranks::many,
     .function = corpus_build_command},
    {.path = "corpus inspect", .summary = "print the header of a corpus", .function = corpus_inspect_command},
    {.path = "corpus verify",
     .summary = "read an entire corpus and check it; exit code 3 if it is damaged",
     .overview = "read an entire corpus and check it, on one rank or many",
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
     .overview = "inspect, merge, split and exchange corpora",
     .description = "Tokenized corpora for training, in HDF5, and the text that they are built from."},
    {.path = "tokenizer train",
     .summary = "train a byte-level BPE on texts: vocab.json and merges.txt",
     .function = tokenizer_train_command},
    {.path = "tokenizer encode", .summary = "turn text into token ids", .function = tokenizer_encode_command},
    {.path = "tokenizer decode", .summary = "turn token ids into text", .function = tokenizer_decode_command},
    {.path = "tokenizer",
     .overview = "train a tokenizer; turn text into tokens and back",
     .description = "Trains tokenizers, and turns text into tokens and back."},
    {.path = "train",
     .overview = "train a model or resume; on one rank or many",
     .ranks = Ranks::many,
     .function = train_command,
     .on_stop_signal = OnStopSignal::ask},
    {.path = "eval",
     .overview = "evaluate a trained model, on one rank or many",
     .ranks = Ranks::many,
     .function = eval_command},
    {.path = "finetune",
     .overview = "fine-tune a pretrained model on RACE, MNLI, QQP or SQuAD; on one rank or many",
     .ranks = Ranks::many,
     .function = finetune_command,
     .on_stop_signal = OnStopSignal::ask},
    {.path = "generate",
     .overview = "continue texts with a trained model, on one rank or many",
     .ranks = Ranks::many,
     .function = generate_command},
    {.path = "checkpoint inspect",
     .summary = "print the contents of a checkpoint",
     .function = checkpoint_inspect_command},
    {.path = "checkpoint verify",
     .summary = "read entire checkpoints and check them; exit code 3 if one is damaged",
     .function = checkpoint_verify_command},
    {.path = "checkpoint reshard",
     .summary = "rewrite one as the files of another grid",
     .overview = "rewrite a checkpoint as the files of another grid, on one rank or many",
     .ranks = Ranks::many,
     .function = checkpoint_reshard_command},
    {.path = "checkpoint export",
     .summary = "export a model to Hugging Face's transformers",
     .overview = "export a model to Hugging Face's transformers, on one rank or many",
     .ranks = Ranks::many,
     .function = checkpoint_export_command},
    {.path = "checkpoint import",
     .summary = "import the weights of another program as a checkpoint",
     .overview = "import the weights of another program as a checkpoint, on one rank or many",
     .ranks = Ranks::many,
     .function = checkpoint_import_command},
    {.path = "checkpoint",
     .overview = "inspect, verify and exchange checkpoints",
     .description = "Operates on checkpoints. DIR is the folder given to --save, or the folder of one step in it.",
     .arguments = " [DIR]"},
    {.path = "plan", .overview = "predict a job on a cluster, and find its fastest layout", .function = plan_command},
    {.path = "megatron", .overview = "translate a launch command of Megatron-LM", .function = megatron_command},
    {.path = "report",
     .overview = "write a page on runs: curves, attempts, checkpoints, options",
     .function = report_command},
    {.path = "selftest",
     .overview = "test the nodes of a job before it trains, on one rank or many",
     .ranks = Ranks::many,
     .function = selftest_command},
    {.path = "completion",
     .overview = "print a script that completes commands and options in bash or zsh",
     .function = completion_command},
    {.path = "man", .overview = "write the manual pages of all commands", .function = man_command},
    {.path = "info",
     .overview = "print version, backends, devices, libraries, ranks",
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
  return call.command->function(CommandLine(std::string(call.command->path), call.arguments, environment));
}

ProgramManual program_manual() {
  ProgramManual manual{.version = version(), .commands = {}};
  for (const Command& command : command_table) {
    CommandManual entry;
    if (command.function != nullptr) {
      CommandLine line(std::string(command.path), {}, nullptr);
      line.observe([&](const Options& options) { entry = options.manual(); });
      command.function(line);
    } else {
      entry.text = command.description;
      entry.subcommands = words_of(command);
    }
    entry.path = command.path;
    entry.summary = command.summary.empty() ? command.overview : command.summary;
    manual.commands.push_back(std::move(entry));
  }
  return manual;
}

std::string program_help() {
  std::string text =
      "trireme: trains transformer language models on many GPUs or CPUs\n\n"
      "usage: trireme COMMAND [OPTIONS]        (mpirun -np N trireme ... or srun trireme ... for several ranks)\n\n";
  for (const Command& command : command_table) {
    if (!command.overview.empty()) text += fmt::format("  {:18} {}\n", command.path, command.overview);
  }
  return text +
         "\n'trireme COMMAND --help' explains each; 'trireme --version' prints the version. Exit codes: 0 done; 2 "
         "usage or\n"
         "configuration; 3 bad data or checkpoint; 4 environment; 5 input or output failed; 6 a rank died; 7 a rank "
         "hung;\n8 numerical; 9 a machine computed a wrong result; 75 stopped early with everything saved: run the "
         "same "
         "command again.\n";
}

std::string unknown_command_text(const std::string& word) {
  std::vector<std::string> paths;
  for (const Command& command : command_table) paths.emplace_back(command.path);
  return fmt::format("there is no command '{}'{}", shortened(word), suggestion(word, paths));
}

}  // namespace trireme::app
