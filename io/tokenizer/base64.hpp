#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::io {

/// Returns the bytes that `text` stands for in base64 (RFC 4648, with or without padding); nothing for another text.
std::optional<std::string> bytes_of_base64(std::string_view text);

/// The inverse, with padding.
std::string base64_of(std::string_view bytes);

}  // namespace trireme::io
