#include "io/json/settings_json.hpp"

#include <nlohmann/json.hpp>

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

}  // namespace

NamedTexts json_settings(std::string_view text, const std::string& where) {
  const json object = parse_json(text, where, /*max_depth=*/16);
  TRIREME_CHECK(object.is_object(), DataError, "{}: {} instead of an object of settings", where,
                json_quotation(object));
  NamedTexts settings;
  append_settings(object, "", settings);
  return settings;
}

}  // namespace trireme::io
