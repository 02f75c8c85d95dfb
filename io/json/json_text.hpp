#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/prepare/corpus_overlap.hpp"

namespace trireme::io {

/// The string under `key` of the JSON object that is the whole of `line`. Throws DataError "path:line_number:column:
/// ..." where the line is not JSON or not an object, or the key is missing, occurs twice, or has no string.
std::string json_text(std::string_view line, const std::string& key, const std::string& path, std::int64_t line_number);

/// Returns a message of the JSON library without its name: "parse error at line 1, column 3: REASON".
std::string json_message(std::string_view message);
/// Returns the reason alone. A line of JSON lines is another one for the library.
std::string json_fault(std::string_view message);

/// A line of JSON, without its end: an object with the string `text` under `key` alone. `text` is UTF-8.
std::string json_line(const std::string& key, const std::string& text);

/// The JSON object that is `line`, with another string under `key`; its other members stay as they are, in their order.
/// Throws DataError where there is no such object or key.
std::string with_json_text(std::string_view line, const std::string& key, const std::string& text);

/// The value under `key` of the JSON object that is `line`, as JSON without blanks; "null" where there is none. Of
/// several such keys, the last counts.
std::string json_value(std::string_view line, const std::string& key);

/// Returns a line of JSON: {"test", "ngram", "documents", "unique_ngrams", "overlapping", "percent"}.
std::string overlap_line(const std::string& test, int n, const prepare::TestOverlap& overlap);

}  // namespace trireme::io
