#pragma once

#include <cstdint>
#include <string>

namespace trireme::io {

enum class Symlinks { follow, refuse };

/// Returns the size of the regular file at `path`. Throws IoError if it is missing or unreadable. Throws DataError
/// naming the kind if it is another kind of file, or a symbolic link not to be followed.
std::int64_t regular_file_size(const std::string& path, Symlinks symlinks = Symlinks::follow);

/// Returns all bytes of the regular file at `path`. Throws likewise, and DataError if it exceeds `max_bytes`.
std::string read_whole_file(const std::string& path, std::int64_t max_bytes, Symlinks symlinks = Symlinks::refuse);

}  // namespace trireme::io
