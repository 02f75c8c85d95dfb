#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "mpi/run_main.hpp"
#include "src/app/commands/checkpoint/checkpoint_command.hpp"
#include "src/app/commands/checkpoint/reshard_command.hpp"
#include "src/app/commands/corpus/build_command.hpp"
#include "src/app/commands/corpus/clean_command.hpp"
#include "src/app/commands/corpus/corpus_command.hpp"
#include "src/app/commands/corpus/overlap_command.hpp"
#include "src/app/commands/corpus/verify_command.hpp"
#include "src/app/commands/eval_command.hpp"
#include "src/app/commands/generate_command.hpp"
#include "src/app/commands/info_command.hpp"
#include "src/app/commands/plan_command.hpp"
#include "src/app/commands/tokenizer/tokenizer_command.hpp"
#include "src/app/commands/train_command.hpp"
#include "src/app/job.hpp"
#include "src/app/options/nearest_name.hpp"
#include "src/app/options/printable.hpp"
#include "src/app/process_limits.hpp"
#include "src/app/run_config/job_options.hpp"
#include "src/app/stop_signal.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/signals.hpp"

namespace {

using namespace trireme;
using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* summary;
  std::function<int(const Arguments&)> run;                                 // on one process
  std::function<int(const Arguments&, mpi::MpiEnvironment&)> run_on_ranks;  // on every rank of an MPI job
  app::OnStopSignal on_stop_signal = app::OnStopSignal::end;
};

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"corpus clean", "copy text without short and repeated documents, on one rank or many", {}, app::clean_command},
      {"corpus overlap", "count what of test sets occurs in text, on one rank or many", {}, app::overlap_command},
      {"corpus build", "turn text into a tokenized corpus, on one rank or many", {}, app::build_command},
      {"corpus verify", "read a whole corpus and check it, on one rank or many", {}, app::verify_command},
      {"corpus", "inspect, merge, split and exchange corpora", app::corpus_command, {}},
      {"tokenizer", "make a tokenizer from text; turn text into tokens and back", app::tokenizer_command, {}},
      {"train", "train a model or continue; on one rank or many", {}, app::train_command, app::OnStopSignal::ask},
      {"eval", "measure a trained model, on one rank or many", {}, app::eval_command},
      {"generate", "continue a text with a trained model, on one rank or many", {}, app::generate_command},
      {"checkpoint reshard", "write a checkpoint as another grid would, on one rank or many", {}, app::reshard_command},
      {"checkpoint", "inspect and verify checkpoints", app::checkpoint_command, {}},
      {"plan", "show what a job would do, without running it", app::plan_command, {}},
      {"info", "version, backends, devices, libraries, ranks", {}, app::info_command},
  };
  return list;
}

void print_help(std::FILE* out) {
  std::fputs(
      "trireme: trains transformer language models on many GPUs or CPUs\n\n"
      "usage: trireme COMMAND [OPTIONS]        (mpirun -np N trireme ... or srun trireme ... for several ranks)\n\n",
      out);
  for (const Command& command : commands()) std::fprintf(out, "  %-18s %s\n", command.name, command.summary);
  std::fputs(
      "\n'trireme COMMAND --help' explains each. Exit codes: 0 done; 2 usage or configuration; 3 bad data or "
      "checkpoint;\n"
      "4 environment; 5 input or output failed; 6 a rank died; 7 a rank hung; 8 numerical; 75 stopped early with "
      "everything\nsaved, run the same command again.\n",
      out);
}

/// Says that there is no such command, and which there are.
void refuse_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  if (!name.empty()) {
    std::fprintf(stderr, "trireme: there is no command '%s'%s\n\n", app::shortened(name).c_str(),
                 app::suggestion(name, names).c_str());
  }
  print_help(stderr);
}

/// The exit code of a command that has printed its results, if they have arrived.
int after_output(int exit_code) {
  TRIREME_CHECK(exit_code != 0 || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0), IoError,
                "cannot write to standard output: {}", std::strerror(errno));
  return exit_code;
}

/// A command of one process: its error is printed once, and is the exit code.
int run_alone(const Command& command, const Arguments& arguments) {
  log::initialise(0, 1);
  try {
    return after_output(command.run(arguments));
  } catch (const Error& error) {
    std::fprintf(stderr, "trireme %s: %s\n", command.name, error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme %s: %s\n", command.name, error.what());
    return static_cast<int>(ExitCode::environment);
  }
}

}  // namespace

/// The program: `main` of the launcher (launcher.cpp) ends with it.
extern "C" int trireme_main(int argc, char** argv) {
  use_alternate_signal_stack();
  move_handlers_to_alternate_stacks();
  // A file that outgrows the limit of the process is an error of the write, with its message and its cleaning up.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string name = argc > 1 ? argv[1] : "";
  const bool first = mpi::launched_rank() == 0;  // under mpirun, help is printed once
  if (name == "--help" || name == "-h" || name == "help") {
    if (first) print_help(stdout);
    return 0;
  }
  for (const Command& command : commands()) {
    const bool two_words = argc > 2 && name + " " + argv[2] == command.name;
    if (name != command.name && !two_words) continue;
    if (!app::limits_suffice(command.name, !command.run)) return static_cast<int>(ExitCode::environment);
    const Arguments arguments(argv + (two_words ? 3 : 2), argv + argc);
    app::take_stop_signals(command.on_stop_signal);
    if (command.run) return !first && app::asks_for_help(arguments) ? 0 : run_alone(command, arguments);
    const auto run = [&](mpi::MpiEnvironment& environment) {
      return after_output(command.run_on_ranks(arguments, environment));
    };
    return mpi::run_main(argc, argv, run, app::startup_timeout_minutes(arguments));
  }
  if (first) refuse_command(name);
  return static_cast<int>(ExitCode::usage);
}
