#pragma once

#include "io/corpus/prepare_files.hpp"

namespace trireme::prepare {

/// Files of the disk.
inline const Files disk = io::prepare_files();

}  // namespace trireme::prepare
