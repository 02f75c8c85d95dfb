#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::io {

/// The string under `key` of the JSON object that is the whole of `line`. Throws DataError "path:line_number:column:
/// ..." where the line is not JSON or not an object, or the key is missing, there twice, or not a string.
std::string json_text(std::string_view line, const std::string& key, const std::string& path, std::int64_t line_number);

}  // namespace trireme::io
