#pragma once

#include <hdf5.h>

#include <string>

#include "src/base/error.hpp"

namespace trireme::io {

/// A call of the HDF5 library failed; the message carries the library's own text.
class Hdf5Error : public detail::ErrorOf<ExitCode::io> {
  using ErrorOf::ErrorOf;
};

/// A system call failed within the library: the file itself may be intact.
class Hdf5SystemError : public Hdf5Error {
  using Hdf5Error::Hdf5Error;
};

namespace h5 {

/// Initialises the library once per process, without plugins and without its exit handler, which can crash after a
/// failed write. Every wrapper below calls it.
void initialise();

/// Suppresses printing of the library's error stack during the object's lifetime; exceptions report errors instead.
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

/// Throws the error of the last library call, "cannot `action`: ...": an Hdf5SystemError with the system's reason, or
/// an EnvironmentError if that is a process limit. Otherwise throws an Hdf5Error with the library's error stack.
[[noreturn]] void fail(const std::string& action);

/// Runs `call` silently and returns its result; a negative one is thrown as an Hdf5Error "cannot `action()`: ...".
/// `action` builds the text lazily: nothing is formatted without an error.
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
