#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::io {

/// Returns the settings of a JSON object, sorted by name. Objects in it join their names: {"a": {"b": 1}} is
/// {"a.b", "1"}. Text has no quotes; lists and empty objects are JSON on one line. Throws DataError that begins with
/// `where` for any other text, and for objects nested deeper than 16 levels.
std::vector<std::pair<std::string, std::string>> json_settings(std::string_view text, const std::string& where);

/// Returns the words of each member of a JSON object, sorted by name: the texts and numbers of a list, or those of a
/// text between white space; none of null. Throws DataError that begins with `where` for anything else.
std::vector<std::pair<std::string, std::vector<std::string>>> json_words(std::string_view text,
                                                                         const std::string& where);

}  // namespace trireme::io
