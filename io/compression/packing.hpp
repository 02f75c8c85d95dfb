#pragma once

#include <string>
#include <string_view>

#include "io/compression/input_file.hpp"

namespace trireme::io {

/// Returns `bytes` as a gzip member or a Zstandard frame of their own, with a checksum: several one after another
/// unpack to all of the bytes. `compression` is one of the two.
std::string packed(std::string_view bytes, Compression compression);

}  // namespace trireme::io
