#pragma once

#include "src/prepare/files.hpp"

namespace trireme::io {

/// Returns the file access of `src/prepare`: text on POSIX file systems, plain or compressed, and corpora in HDF5.
prepare::Files prepare_files();

}  // namespace trireme::io
