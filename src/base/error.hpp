#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "src/base/visible.hpp"

namespace trireme {

/// Exit code of the program. Job scripts read it to choose whether to start again.
enum class ExitCode : int {
  success = 0,
  usage = 2,        ///< options or configuration that cannot work
  data = 3,         ///< a corpus or a checkpoint that is damaged or does not fit
  environment = 4,  ///< a missing library or device, or too little memory
  io = 5,           ///< reading or writing failed: a full disk, no permission
  rank_died = 6,
  hung = 7,
  numerical = 8,      ///< a loss, gradients or output that are not finite
  machine = 9,        ///< a machine computes wrong: the job must go on without it
  stopped_early = 75  ///< everything is saved; start the same command again to go on
};

/// Root of every error the program throws on purpose. The message names the failure, its reason and a remedy. Below app
/// it names options by field, `<seq_length>`; app prints their flags. Control characters in it are escaped, but line
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

/// Options that cannot work, alone or together.
class ConfigError : public detail::ErrorOf<ExitCode::usage> {
  using ErrorOf::ErrorOf;
};
/// Tensors whose shapes or types do not fit together: a mistake in the program, not of its user.
class ShapeError : public detail::ErrorOf<ExitCode::usage> {
  using ErrorOf::ErrorOf;
};
/// A corpus, text or vocabulary that is damaged or does not fit.
class DataError : public detail::ErrorOf<ExitCode::data> {
  using ErrorOf::ErrorOf;
};
/// A checkpoint that is damaged, missing or does not fit.
class CheckpointError : public detail::ErrorOf<ExitCode::data> {
  using ErrorOf::ErrorOf;
};
/// A library, a device or memory that is missing on this machine.
class EnvironmentError : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// The requested backend is not in this build or finds no device.
class BackendUnavailable : public detail::ErrorOf<ExitCode::environment> {
  using ErrorOf::ErrorOf;
};
/// Reading or writing failed.
class IoError : public detail::ErrorOf<ExitCode::io> {
  using ErrorOf::ErrorOf;
};
/// Other ranks, or the GPU, have not answered for longer than the job waits.
class HungError : public detail::ErrorOf<ExitCode::hung> {
  using ErrorOf::ErrorOf;
};
/// The run no longer produces finite numbers.
class NumericalError : public detail::ErrorOf<ExitCode::numerical> {
  using ErrorOf::ErrorOf;
};
/// A machine that computes wrong.
class MachineError : public detail::ErrorOf<ExitCode::machine> {
  using ErrorOf::ErrorOf;
};

}  // namespace trireme
