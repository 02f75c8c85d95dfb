#include "io/h5/hdf5_error.hpp"

#include <cstring>
#include <string_view>
#include <vector>

#include "io/posix/system_call.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::io::h5 {

void initialise() {
  static const bool done = [] {
    H5dont_atexit();  // before any other use of the library, including its constants
    const Silence silence;
    H5open();
    H5PLset_loading_state(0);
    return true;
  }();
  static_cast<void>(done);
}

Silence::Silence() {
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}
Silence::~Silence() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

namespace {

/// The errno in a driver's message ("..., errno = 28, error message = ..."), or 0.
int errno_in(std::string_view text) {
  constexpr std::string_view mark = "errno = ";
  const std::size_t begin = text.find(mark);
  if (begin == text.npos) return 0;
  text.remove_prefix(begin + mark.size());
  return take_number<int>(text).value_or(0);
}

}  // namespace

void fail(const std::string& action) {
  std::vector<std::string> stack;  // innermost first
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
        static_cast<std::vector<std::string>*>(data)->push_back(error->desc != nullptr ? error->desc : "?");
        return 0;
      },
      &stack);
  // The system's reason suffices: the library adds memory addresses and byte counts to it.
  for (const std::string& text : stack) {
    const int error = errno_in(text);
    if (meets_limit(error)) throw_system_error("cannot " + action, error);
    if (error != 0) throw Hdf5SystemError("cannot {}: {}", action, std::strerror(error));
  }
  if (stack.empty()) throw Hdf5Error("cannot {}: the HDF5 library gives no reason", action);
  if (stack.size() == 1) throw Hdf5Error("cannot {}: HDF5 reports {}", action, stack.front());
  throw Hdf5Error("cannot {}: HDF5 reports {} ({})", action, stack.back(), stack.front());
}

}  // namespace trireme::io::h5
