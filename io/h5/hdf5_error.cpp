#include "io/h5/hdf5_error.hpp"

#include <vector>

namespace trireme::io::h5 {

void initialise() {
  static const bool done = [] {
    H5dont_atexit();  // before anything else of the library, its constants included
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

void fail(const std::string& action) {
  std::vector<std::string> stack;  // innermost first
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
        static_cast<std::vector<std::string>*>(data)->push_back(
            fmt::format("{}: {}", error->func_name ? error->func_name : "?", error->desc ? error->desc : "?"));
        return 0;
      },
      &stack);
  if (stack.empty()) throw Hdf5Error("cannot {}: the HDF5 library gives no reason", action);
  if (stack.size() == 1) throw Hdf5Error("cannot {}: HDF5 says {}", action, stack.front());
  throw Hdf5Error("cannot {}: HDF5 says {} ({})", action, stack.back(), stack.front());
}

}  // namespace trireme::io::h5
