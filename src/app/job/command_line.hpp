#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mpi/environment.hpp"
#include "src/app/options/options.hpp"

namespace trireme::app {

/// One call of the program: the command, its arguments, and MPI if it runs on ranks.
class CommandLine {
 public:
  CommandLine(const std::string& path, std::vector<std::string> arguments, mpi::MpiEnvironment* environment)
      : command_("trireme " + path), arguments_(std::move(arguments)), environment_(environment) {}

  /// Returns "trireme corpus build".
  const std::string& command() const { return command_; }
  const std::vector<std::string>& arguments() const { return arguments_; }
  /// Reads the options from the arguments. Returns false if these ask for help, which only rank 0 prints.
  bool read(Options& options) const { return read(options, arguments_, {}); }
  /// Likewise from `arguments` instead; an error lists `problems` first.
  bool read(Options& options, const std::vector<std::string>& arguments, std::vector<std::string> problems) const {
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
  std::function<void(const Options&)> observer_;
};

}  // namespace trireme::app
