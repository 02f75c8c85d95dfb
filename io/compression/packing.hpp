#pragma once

#include <string>
#include <string_view>

#include "io/compression/input_file.hpp"

namespace trireme::io {

/// Returns `bytes` as a separate gzip member or Zstandard frame, with a checksum; concatenated ones unpack to the
/// concatenated bytes. `compression` is one of the two.
std::string packed(std::string_view bytes, Compression compression);

}  // namespace trireme::io
