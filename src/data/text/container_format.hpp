#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// Leading bytes of a file needed by `check_is_text`; fewer for a shorter file.
inline constexpr std::size_t container_head_bytes = 4096;

/// Throws DataError, naming format and remedy, if `head` begins a container such as Parquet, a database or an archive.
/// As text it would become a document of binary bytes. `head` is the first bytes of the file at `path`, unpacked.
void check_is_text(const std::string& path, std::string_view head);

}  // namespace trireme::data
