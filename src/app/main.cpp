#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "mpi/run_main.hpp"
#include "src/app/command_table.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/process_limits.hpp"
#include "src/app/job/stop_signal.hpp"
#include "src/app/options/field_names.hpp"
#include "src/app/run_config/device_options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/signals.hpp"
#include "src/base/text.hpp"

namespace {

using namespace trireme;

/// Returns `exit_code`. Throws IoError if the printed results of a command are lost.
int after_output(int exit_code) {
  if (exit_code != 0) return exit_code;
  TRIREME_CHECK(std::fflush(stdout) == 0, IoError, "cannot write to standard output: {}", std::strerror(errno));
  // An earlier call failed; its error number is lost.
  TRIREME_CHECK(std::ferror(stdout) == 0, IoError, "cannot write to standard output");
  return exit_code;
}

/// Prints a text, on the first process. Returns the exit code.
int show(bool is_first, const std::string& text) {
  if (!is_first) return 0;
  std::fputs(text.c_str(), stdout);
  try {
    return after_output(0);
  } catch (const Error& error) {
    fmt::print(stderr, "trireme: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

/// Runs a command on one process: prints its error once and returns that error's exit code.
int run_alone(const app::Call& call) {
  log::initialise(0, 1);
  ExitCode code = ExitCode::environment;
  std::string problem;
  try {
    return after_output(app::run_command(call));
  } catch (const Error& error) {
    code = error.exit_code();
    problem = error.what();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  fmt::print(stderr, "trireme {}: {}\n", call.command->path, visible(app::with_flags(problem)));
  return static_cast<int>(code);
}

}  // namespace

/// Runs the program, called by `main` of the launcher (launcher.cpp).
extern "C" int trireme_main(int argc, char** argv) {
  use_alternate_signal_stack();
  log::set_message_filter(app::with_flags);
  move_handlers_to_alternate_stacks();
  // Beyond the file size limit a write fails, which reports the error and cleans up.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::string name = words.empty() ? "" : words.front();
  const bool first = mpi::launched_rank() == 0;  // under mpirun, help is printed once
  if (name == "--help" || name == "-h" || name == "help") {
    return show(first, app::program_help());
  }
  if (name == "--version") {
    return show(first, fmt::format("trireme {}\n", app::version()));
  }
  try {
    log::renews_lines();
  } catch (const ConfigError& error) {
    if (first) fmt::print(stderr, "trireme: {}\n", visible(error.what()));
    return static_cast<int>(ExitCode::usage);
  }
  const app::Call call = app::find_command(words);
  if (call.command == nullptr) {
    if (first && !name.empty()) std::fprintf(stderr, "trireme: %s\n\n", app::unknown_command_text(name).c_str());
    if (first) std::fputs(app::program_help().c_str(), stderr);
    return static_cast<int>(ExitCode::usage);
  }
  const bool with_mpi = call.command->ranks == app::Ranks::many;
  if (!app::limits_suffice(std::string(call.command->path), with_mpi)) return static_cast<int>(ExitCode::environment);
  app::take_stop_signals(call.command->on_stop_signal);
  if (!with_mpi) return run_alone(call);
  const auto run = [&](mpi::MpiEnvironment& environment) { return after_output(app::run_command(call, &environment)); };
  return mpi::run_main(argc, argv, run, app::startup_timeout_minutes(call.arguments));
}
