#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mpi/environment.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/device_options.hpp"

namespace trireme::app {

/// One call of the program: the command, its arguments, and MPI if it runs on ranks.
class CommandLine {
 public:
  CommandLine(const std::string& path, std::vector<std::string> arguments, mpi::MpiEnvironment* environment,
              bool on_ranks = false)
      : command_("trireme " + path), arguments_(std::move(arguments)), environment_(environment), on_ranks_(on_ranks) {}

  /// Returns "trireme corpus build".
  const std::string& command() const { return command_; }
  const std::vector<std::string>& arguments() const { return arguments_; }
  /// Reads the options from the arguments. Returns false if these ask for help, which only rank 0 prints. Every command
  /// on ranks has --startup-timeout-minutes, which `main` has read.
  bool read(Options& options) const { return read(options, arguments_, {}); }
  /// Likewise from `arguments` instead; an error lists `problems` first.
  bool read(Options& options, const std::vector<std::string>& arguments, std::vector<std::string> problems) const {
    if (on_ranks_ && options.spelling("startup-timeout-minutes").empty()) {
      options.section("Device");
      declare_startup_timeout(options, &startup_minutes_);
    }
    if (observer_) {
      observer_(options);
      return false;
    }
    const int rank = environment_ != nullptr ? environment_->rank() : mpi::launched_rank();
    if (rank != 0 && asks_for_help(arguments)) return false;
    return options.parse(arguments, std::move(problems));
  }
  /// Makes `read` pass the declared options to `observer` and return false, as for --help, so that the command ends.
  void observe(std::function<void(const Options&)> observer) { observer_ = std::move(observer); }
  /// Returns MPI, for a command that runs on ranks.
  mpi::MpiEnvironment& environment() const { return *environment_; }

 private:
  std::string command_;
  std::vector<std::string> arguments_;
  mpi::MpiEnvironment* environment_;
  bool on_ranks_;
  mutable double startup_minutes_ = mpi::default_startup_timeout_minutes;  // bound to the option
  std::function<void(const Options&)> observer_;
};

}  // namespace trireme::app
