#include "src/app/command_table.hpp"

#include <fmt/ranges.h>

#include <cstdio>

#include "src/app/commands/commands.hpp"
#include "src/app/job/job.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/nearest_name.hpp"

namespace trireme::app {
namespace {

/// All commands, in the order of every help. A parent command follows its subcommands.
constexpr Command command_table[] = {
    {.path = "corpus clean",
     .summary = "copy text without short documents, duplicates and near duplicates",
     .overview = "copy text without short and repeated documents, on one rank or many",
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
     .summary = "read a whole corpus and check it; exit code 3 where it is damaged",
     .overview = "read a whole corpus and check it, on one rank or many",
     .ranks = Ranks::many,
     .function = corpus_verify_command},
    {.path = "corpus merge", .summary = "put several corpora into one", .function = corpus_merge_command},
    {.path = "corpus split",
     .summary = "split a corpus into files for training, validation and test",
     .function = corpus_split_command},
    {.path = "corpus sample",
     .summary = "take a random sample of a corpus' documents",
     .function = corpus_sample_command},
    {.path = "corpus samples", .summary = "print the samples that training reads", .function = corpus_samples_command},
    {.path = "corpus import",
     .summary = "read the token files of Megatron-LM or llm.c",
     .function = corpus_import_command},
    {.path = "corpus export", .summary = "write the token files of Megatron-LM", .function = corpus_export_command},
    {.path = "corpus",
     .overview = "inspect, merge, split and exchange corpora",
     .description = "Tokenized corpora for training, in HDF5, and the text before."},
    {.path = "tokenizer train",
     .summary = "make a byte-level BPE from texts: vocab.json and merges.txt",
     .function = tokenizer_train_command},
    {.path = "tokenizer encode", .summary = "turn text into token ids", .function = tokenizer_encode_command},
    {.path = "tokenizer decode", .summary = "turn token ids into text", .function = tokenizer_decode_command},
    {.path = "tokenizer",
     .overview = "make a tokenizer from text; turn text into tokens and back",
     .description = "Makes tokenizers, and turns text into tokens and back."},
    {.path = "train",
     .overview = "train a model or continue; on one rank or many",
     .ranks = Ranks::many,
     .function = train_command,
     .on_stop_signal = OnStopSignal::ask},
    {.path = "eval",
     .overview = "measure a trained model, on one rank or many",
     .ranks = Ranks::many,
     .function = eval_command},
    {.path = "finetune",
     .overview = "train a pretrained model on RACE, MNLI, QQP or SQuAD; on one rank or many",
     .ranks = Ranks::many,
     .function = finetune_command,
     .on_stop_signal = OnStopSignal::ask},
    {.path = "generate",
     .overview = "continue texts with a trained model, on one rank or many",
     .ranks = Ranks::many,
     .function = generate_command},
    {.path = "checkpoint inspect",
     .summary = "print the content of a checkpoint",
     .function = checkpoint_inspect_command},
    {.path = "checkpoint verify",
     .summary = "read whole checkpoints and check them; exit code 3 where one is damaged",
     .function = checkpoint_verify_command},
    {.path = "checkpoint reshard",
     .summary = "write one again in the files of another grid",
     .overview = "write a checkpoint as another grid would, on one rank or many",
     .ranks = Ranks::many,
     .function = checkpoint_reshard_command},
    {.path = "checkpoint export",
     .summary = "write a model for Hugging Face's transformers",
     .overview = "write a model for Hugging Face's transformers, on one rank or many",
     .ranks = Ranks::many,
     .function = checkpoint_export_command},
    {.path = "checkpoint import",
     .summary = "make a checkpoint from the weights of another program",
     .overview = "make a checkpoint from the weights of another program, on one rank or many",
     .ranks = Ranks::many,
     .function = checkpoint_import_command},
    {.path = "checkpoint",
     .overview = "inspect, verify and exchange checkpoints",
     .description = "Work on checkpoints. DIR is the folder given to --save, or the folder of one step in it.",
     .arguments = " [DIR]"},
    {.path = "plan", .overview = "predict a job on a cluster, and find its fastest layout", .function = plan_command},
    {.path = "megatron", .overview = "translate the words of a launch of Megatron-LM", .function = megatron_command},
    {.path = "report",
     .overview = "make a page on runs: curves, attempts, checkpoints, options",
     .function = report_command},
    {.path = "selftest",
     .overview = "test the nodes of a job before it trains, on one rank or many",
     .ranks = Ranks::many,
     .function = selftest_command},
    {.path = "completion",
     .overview = "a script by which bash or zsh complete commands and options",
     .function = completion_command},
    {.path = "man", .overview = "write the manual pages of all commands", .function = man_command},
    {.path = "info",
     .overview = "version, backends, devices, libraries, ranks",
     .ranks = Ranks::many,
     .function = info_command},
};

const Command* find_path(std::string_view path) {
  for (const Command& command : command_table) {
    if (command.path == path) return &command;
  }
  return nullptr;
}

/// Returns the subcommands of a parent command, by the last word of their paths.
std::vector<std::pair<std::string, const Command*>> commands_of(const Command& parent) {
  const std::string prefix = std::string(parent.path) + " ";
  std::vector<std::pair<std::string, const Command*>> commands;
  for (const Command& command : command_table) {
    if (command.path.starts_with(prefix)) commands.emplace_back(command.path.substr(prefix.size()), &command);
  }
  return commands;
}

std::string parent_help(const Command& parent) {
  std::vector<std::string> words;
  for (const auto& [word, command] : commands_of(parent)) words.push_back(word);
  std::string text = fmt::format("Usage: trireme {} {} [OPTION]...{}\n{}\n\n", parent.path, fmt::join(words, "|"),
                                 parent.arguments, parent.description);
  for (const auto& [word, command] : commands_of(parent)) {
    text += fmt::format("  {:7}  {}\n", word, command->summary);
  }
  return text + fmt::format("\ntrireme {} COMMAND --help explains each.\n", parent.path);
}

int run_parent_command(const Command& parent, const std::vector<std::string>& arguments) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  if (word == "--help" || word == "-h") {
    if (mpi::launched_rank() == 0) std::fputs(parent_help(parent).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> words;
  for (const auto& [name, command] : commands_of(parent)) words.push_back(name);
  refuse_subcommand(std::string(parent.path), word, words);
}

}  // namespace

Call find_command(const std::vector<std::string>& words) {
  for (const std::size_t length : {2, 1}) {
    if (words.size() < length) continue;
    const std::string path = length == 2 ? words[0] + " " + words[1] : words[0];
    if (const Command* command = find_path(path)) {
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
      for (const auto& [word, subcommand] : commands_of(command)) entry.subcommands.push_back(word);
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
         "hung;\n8 numerical; 9 a machine computed wrong; 75 stopped early with everything saved, run the same command "
         "again.\n";
}

std::string unknown_command_text(const std::string& word) {
  std::vector<std::string> paths;
  for (const Command& command : command_table) paths.emplace_back(command.path);
  return fmt::format("there is no command '{}'{}", shortened(word), suggestion(word, paths));
}

}  // namespace trireme::app
