#pragma once

#include <string>

namespace trireme::app {

/// Writes a file whole or not at all. IoError, which names the option, where it cannot be written.
void write_text_file(const std::string& option, const std::string& path, const std::string& text);

}  // namespace trireme::app
