#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::app {

/// Returns the content of a file that `option` names. Throws IoError that begins with the option if it cannot be read,
/// DataError if it has more than `max_bytes` or is not a regular file.
std::string read_text_file(const std::string& option, const std::string& path, std::int64_t max_bytes = 1 << 20);

/// Throws ConfigError if an output is one of the inputs, another output, or a checkpoint's file. Ignores empty names.
void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

/// Writes the file that `option` names, completely or not at all. Throws IoError, which names the option.
void write_text_file(const std::string& option, const std::string& path, const std::string& text);

}  // namespace trireme::app
