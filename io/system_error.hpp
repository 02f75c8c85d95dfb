#pragma once

#include <string>

namespace trireme::io {

/// Whether `error`, an errno, says that the process has met a limit of its own (ulimit -f, ulimit -n).
bool meets_limit(int error);

/// Throws the error of a system call that failed with `error`: "`what`: its text". An EnvironmentError that names the
/// limit where one was met, else an IoError.
[[noreturn]] void throw_system_error(const std::string& what, int error);

}  // namespace trireme::io
