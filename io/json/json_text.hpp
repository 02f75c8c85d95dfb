#pragma once

#include <climits>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "src/prepare/corpus_overlap.hpp"

namespace trireme::io {

/// Returns the string under a key of the JSON object in `line`, which holds nothing else: "text", or "meta.text" in the
/// object under "meta". Those of several keys, separated by commas, follow one another with an empty line between.
/// Throws DataError "path:line_number:column: ..." where the line is not JSON or not an object, or a key is missing,
/// occurs twice, or has no string. `remedy` ends the message about a missing key.
std::string json_text(std::string_view line, const std::string& keys, const std::string& path, std::int64_t line_number,
                      const char* remedy = "");

/// Returns the string under one key as `json_text` does, or none where the object lacks the key or holds null there.
std::optional<std::string> optional_json_text(std::string_view line, const std::string& key, const std::string& path,
                                              std::int64_t line_number);

/// Returns a value of the JSON library as text: on one line, or with each level indented by `indent`. Bytes that are
/// not UTF-8 become U+FFFD.
template <class Json>
std::string json_dump(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Parses a text. DataError "`where`: not JSON: ..." with line and column, also if it nests deeper than `max_depth`.
nlohmann::json parse_json(std::string_view text, const std::string& where, int max_depth = INT_MAX);

/// Parses one line of a file. DataError "`where`:column: not JSON: ...".
nlohmann::json parse_json_line(std::string_view line, const std::string& where);

/// Returns a member of an object; null if there is none.
const nlohmann::json& json_member(const nlohmann::json& object, std::string_view name);

/// Returns a member of an object. Throws DataError that begins with `where` if there is none.
const nlohmann::json& required_member(const nlohmann::json& object, const char* name, const std::string& where);

/// Formats a value for a message. Names only the kind of arrays and objects: `dump` recurses as deep as they nest.
std::string json_quotation(const nlohmann::json& value);

/// Returns a message of the JSON library without its name: "parse error at line 1, column 3: REASON".
std::string json_message(std::string_view message);
/// Returns only the reason: the library's line number is not that of the JSON lines file.
std::string json_fault(std::string_view message);

/// Returns a line of JSON without newline: an object with only the string `text`, UTF-8, under `key`.
std::string json_line(const std::string& key, const std::string& text);

/// Returns the JSON object `line` with another string under `key`; other members and their order are unchanged. Throws
/// DataError if there is no such object or key.
std::string with_json_text(std::string_view line, const std::string& key, const std::string& text);

/// Returns the value under `key` of the JSON object `line`, as JSON without blanks; "null" if none. The last duplicate
/// key wins.
std::string json_value(std::string_view line, const std::string& key);

/// Returns a line of JSON: {"test", "ngram", "documents", "unique_ngrams", "overlapping", "percent"}.
std::string overlap_line(const std::string& test, int n, const prepare::TestOverlap& overlap);

}  // namespace trireme::io
