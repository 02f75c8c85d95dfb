#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "src/base/text.hpp"

namespace trireme {

/// Exit code of the program. Job scripts use it to decide whether to restart.
enum class ExitCode : int {
  success = 0,
  usage = 2,        ///< invalid options or configuration
  data = 3,         ///< a damaged or mismatched corpus or checkpoint
  environment = 4,  ///< a missing library or device, or too little memory
  io = 5,           ///< reading or writing failed: a full disk, no permission
  rank_died = 6,
  hung = 7,
  numerical = 8,      ///< a loss, gradients or output that are not finite
  machine = 9,        ///< a machine computes wrong results: exclude it from the job
  stopped_early = 75  ///< everything is saved; rerun the same command to resume
};

/// Root of every error the program throws on purpose. The message names the failure, its reason and a remedy. Below app
/// it names options by field, `<seq_length>`; app prints their flags. Control characters in it are escaped, except line
/// feeds and tabs. `main` prints it once and returns `exit_code()`.
class Error : public std::runtime_error {
 public:
  Error(ExitCode exit_code, const std::string& message) : std::runtime_error(visible(message)), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

namespace detail {
template <ExitCode code>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(code, message) {}
  template <class First, class... Rest>
  ErrorOf(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : Error(code, fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};
}  // namespace detail

/// Options that are invalid, alone or in combination.
class ConfigError : public detail::ErrorOf<ExitCode::usage> {
  using ErrorOf::ErrorOf;
};
/// Tensors with incompatible shapes or types: a bug in the program, not a user error.
class ShapeError : public detail::ErrorOf<ExitCode::usage> {
  using ErrorOf::ErrorOf;
};
/// A damaged or mismatched corpus, text or vocabulary.
class DataError : public detail::ErrorOf<ExitCode::data> {
  using ErrorOf::ErrorOf;
};
/// A damaged, missing or mismatched checkpoint.
class CheckpointError : public detail::ErrorOf<ExitCode::data> {
  using ErrorOf::ErrorOf;
};
/// A missing library or device, or insufficient memory, on this machine.
class EnvironmentError : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// The requested backend is not part of this build or finds no device.
class BackendUnavailable : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// Reading or writing failed.
class IoError : public detail::ErrorOf<ExitCode::io> {
  using ErrorOf::ErrorOf;
};
/// Other ranks, or the GPU, have not responded within the maximum wait.
class HungError : public detail::ErrorOf<ExitCode::hung> {
  using ErrorOf::ErrorOf;
};
/// The run no longer produces finite numbers.
class NumericalError : public detail::ErrorOf<ExitCode::numerical> {
  using ErrorOf::ErrorOf;
};
/// A machine that computes wrong results.
class MachineError : public detail::ErrorOf<ExitCode::machine> {
  using ErrorOf::ErrorOf;
};

}  // namespace trireme
