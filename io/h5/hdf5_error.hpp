#pragma once

#include <hdf5.h>

#include <string>

#include "src/base/error.hpp"

namespace trireme::io {

/// A call of the HDF5 library failed; the message carries the library's own text.
class Hdf5Error : public detail::ErrorOf<ExitCode::io> {
  using ErrorOf::ErrorOf;
};

/// A call of the operating system failed in the library: the file itself may be sound.
class Hdf5SystemError : public Hdf5Error {
  using Hdf5Error::Hdf5Error;
};

namespace h5 {

/// Prepares the library once for the process: no plugins are ever loaded, and no handler runs at exit, where it can
/// crash after a failed write. Every wrapper below calls it by itself.
void initialise();

/// Suppresses the library's printing of its error stack during the object's lifetime; errors are reported by exceptions
/// instead.
class Silence {
 public:
  Silence();
  ~Silence();
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// Throws the error of the last call of the library, "cannot `action`: ...". It is an Hdf5SystemError with the system's
/// reason, or an EnvironmentError where that is a limit of the process. Otherwise it is an Hdf5Error with the library's
/// error stack.
[[noreturn]] void fail(const std::string& action);

/// Runs `call` silently and returns its result; a negative one is thrown as an Hdf5Error "cannot `action()`: ...".
/// `action` is a callable that makes the words, so that nothing is formatted without an error.
template <class Action, class Call>
auto checked(const Action& action, const Call& call) {
  initialise();
  const Silence silence;
  const auto result = call();
  if (result < 0) fail(action());
  return result;
}

}  // namespace h5
}  // namespace trireme::io
