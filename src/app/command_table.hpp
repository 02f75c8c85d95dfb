#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/app/job/command_line.hpp"
#include "src/app/job/stop_signal.hpp"
#include "src/app/manual/manual.hpp"

namespace trireme::app {

/// Processes that run a command: one, or all ranks of an MPI job.
enum class Ranks { one, many };

/// A command, or a group of commands.
struct Command {
  std::string_view path = {};         ///< "train", "corpus build"; a parent command has only the first word
  std::string_view summary = {};      ///< a few words, for lists of commands
  std::string_view description = {};  ///< parent commands: the paragraph above the list of subcommands
  std::string_view arguments = {};    ///< parent commands: " [DIR]", after the options
  Ranks ranks = Ranks::one;
  int (*function)(const CommandLine&) = nullptr;  ///< null in a parent command
  OnStopSignal on_stop_signal = OnStopSignal::end;
};

/// A command and the arguments after its path.
struct Call {
  const Command* command = nullptr;  ///< null if there is no such command
  std::vector<std::string> arguments;
};

/// Finds the command at the start of `words`, those after `trireme`.
Call find_command(const std::vector<std::string>& words);

/// Runs a command and returns its exit code. A group prints its help, or throws ConfigError with its nearest command.
/// `environment` is null on one process.
int run_command(const Call& call, mpi::MpiEnvironment* environment = nullptr);

/// Returns all commands with their options.
ProgramManual program_manual();

/// Returns the text of `trireme --help`.
std::string program_help();

/// Returns "there is no command 'trian'; did you mean train?"
std::string unknown_command_text(const std::string& word);

}  // namespace trireme::app
