#include "src/app/job/command_line.hpp"

namespace trireme::app {

bool CommandLine::read(Options& options, const std::vector<std::string>& arguments,
                       std::vector<std::string> problems) const {
  if (observer_) {
    observer_(options);
    return false;
  }
  const int rank = environment_ != nullptr ? environment_->rank() : mpi::launched_rank();
  if (rank != 0 && asks_for_help(arguments)) return false;
  return options.parse(arguments, std::move(problems));
}

}  // namespace trireme::app
