#pragma once

#include <string>

namespace trireme::app {

/// Returns the content of a file of at most a MiB, which `option` names. Throws IoError that begins with the option if
/// it cannot be read, DataError if it is larger or not a regular file.
std::string read_text_file(const std::string& option, const std::string& path);

/// Writes the file that `option` names, completely or not at all. Throws IoError, which names the option.
void write_text_file(const std::string& option, const std::string& path, const std::string& text);

}  // namespace trireme::app
