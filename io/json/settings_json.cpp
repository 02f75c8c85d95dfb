#include "io/json/settings_json.hpp"

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

void append_settings(const json& object, const std::string& prefix, NamedTexts& settings) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = prefix + name;
    if (value.is_object() && !value.empty()) {
      append_settings(value, path + ".", settings);
    } else {
      settings.emplace_back(path, value.is_string() ? value.get<std::string>() : json_dump(value));
    }
  }
}

json parse_object(std::string_view text, const std::string& where) {
  json object = parse_json(text, where, /*max_depth=*/16);
  TRIREME_CHECK(object.is_object(), DataError, "{}: {} instead of an object of settings", where,
                json_quotation(object));
  return object;
}

}  // namespace

NamedTexts json_settings(std::string_view text, const std::string& where) {
  NamedTexts settings;
  append_settings(parse_object(text, where), "", settings);
  return settings;
}

std::vector<std::pair<std::string, std::vector<std::string>>> json_words(std::string_view text,
                                                                         const std::string& where) {
  std::vector<std::pair<std::string, std::vector<std::string>>> result;
  const json object = parse_object(text, where);
  for (const auto& [name, value] : object.items()) {
    std::vector<std::string>& words = result.emplace_back(name, std::vector<std::string>()).second;
    if (value.is_string()) {
      std::istringstream stream(value.get<std::string>());
      words.assign(std::istream_iterator<std::string>(stream), {});
      continue;
    }
    TRIREME_CHECK(value.is_array() || value.is_null(), DataError, "{}: {} instead of a list under \"{}\"", where,
                  json_quotation(value), name);
    for (const json& word : value) {
      TRIREME_CHECK(word.is_string() || word.is_number(), DataError, "{}: {} in the list \"{}\"", where,
                    json_quotation(word), name);
      words.push_back(word.is_string() ? word.get<std::string>() : json_dump(word));
    }
  }
  return result;
}

}  // namespace trireme::io
