#include "io/json/json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Path of the value that comes next, "meta.text" for a member of a member, while a handler reads an object.
class ValuePath {
 public:
  void enter_key(std::string_view name) { path_.resize(begins_.back()), path_ += name; }
  void open(bool is_list) {
    if (!begins_.empty()) path_ += '.';
    begins_.push_back(path_.size());
    lists_ += is_list ? 1 : 0;
  }
  void close(bool is_list) {
    begins_.pop_back();
    lists_ -= is_list ? 1 : 0;
  }
  std::size_t depth() const { return begins_.size(); }
  /// Returns whether the value is at `path`; the members of lists have none.
  bool is(std::string_view path) const { return lists_ == 0 && path_ == path; }

 private:
  std::string path_;
  std::vector<std::size_t> begins_;  // where the names in each open object or list begin in `path_`
  int lists_ = 0;
};

/// Keeps the strings under some keys and skips everything else without building it, at any nesting depth.
class KeyHandler : public nlohmann::json_sax<json> {
 public:
  KeyHandler(std::string_view keys, std::string location, const char* remedy, bool accepts_null = false)
      : keys_(keys.empty() ? std::vector<std::string_view>{keys} : split(keys, ',')),
        texts_(keys_.size()),
        location_(std::move(location)),
        remedy_(remedy),
        accepts_null_(accepts_null) {}

  const std::optional<std::string>& first() const { return texts_[0]; }

  std::string finish() {
    std::string result;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      TRIREME_CHECK(texts_[i].has_value(), DataError, "{}: the object has no key '{}'{}", location_, keys_[i], remedy_);
      if (i > 0) result += "\n\n";
      result += *texts_[i];
    }
    return result;
  }

  bool key(std::string& name) override {
    path_.enter_key(name);
    wanted_ = nullptr;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (!path_.is(keys_[i])) continue;
      wanted_ = &texts_[i];
      TRIREME_CHECK(!*wanted_, DataError, "{}: the key '{}' occurs twice", location_, keys_[i]);
    }
    return true;
  }
  bool string(std::string& text) override {
    check_type("a string", true);
    if (std::optional<std::string>* const wanted = std::exchange(wanted_, nullptr)) *wanted = std::move(text);
    return true;
  }
  bool null() override { return check_type("null", accepts_null_); }
  bool boolean(bool) override { return check_type("a boolean"); }
  bool number_integer(std::int64_t) override { return check_type("a number"); }
  bool number_unsigned(std::uint64_t) override { return check_type("a number"); }
  bool number_float(double, const std::string&) override { return check_type("a number"); }
  bool binary(json::binary_t&) override { return check_type("binary data"); }
  bool start_object(std::size_t) override {
    if (path_.depth() > 0) check_type("an object");
    path_.open(false);
    return true;
  }
  bool end_object() override { return path_.close(false), true; }
  bool start_array(std::size_t) override {
    check_type("an array");
    path_.open(true);
    return true;
  }
  bool end_array() override { return path_.close(true), true; }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw DataError("{}:{}: not JSON: {}", location_, byte, json_fault(error.what()));
  }

 private:
  bool check_type(const char* what, bool is_accepted = false) {
    TRIREME_CHECK(path_.depth() > 0, DataError, "{}: the line is {}, not an object", location_, what);
    TRIREME_CHECK(wanted_ == nullptr || is_accepted, DataError, "{}: the value of '{}' is {}, not a string", location_,
                  keys_[static_cast<std::size_t>(wanted_ - texts_.data())], what);
    return true;
  }

  std::vector<std::string_view> keys_;
  std::vector<std::optional<std::string>> texts_;
  std::string location_;
  const char* remedy_;
  bool accepts_null_;
  ValuePath path_;
  std::optional<std::string>* wanted_ = nullptr;  // text of the next value, if it is that of a key
};

/// Splits an object at the value of one key, and rewrites it in three parts: before, value, after. `dump` would recurse
/// as deep as a hostile line nests.
class MemberDivider : public nlohmann::json_sax<json> {
 public:
  explicit MemberDivider(const std::string& key) : key_(key) {}

  /// Returns whether the object has the key.
  bool found() const { return part_ == after; }
  const std::string& value() const { return parts_[inside]; }
  /// Returns the object with another value.
  std::string with(const std::string& value) const { return parts_[before] + value + parts_[after]; }

  bool key(std::string& name) override {
    write(json(name).dump() + ":");
    comes_next_ = true;
    path_.enter_key(name);
    if (!path_.is(key_)) return true;
    // The last duplicate key wins.
    parts_[before] += std::exchange(parts_[inside], {}) + std::exchange(parts_[after], {});
    part_ = inside;
    depth_ = path_.depth();
    return true;
  }
  bool string(std::string& text) override { return scalar(json(text).dump()); }
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(std::int64_t number) override { return scalar(fmt::format("{}", number)); }
  bool number_unsigned(std::uint64_t number) override { return scalar(fmt::format("{}", number)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return start("{", false); }
  bool end_object() override { return end("}", false); }
  bool start_array(std::size_t) override { return start("[", true); }
  bool end_array() override { return end("]", true); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override { return false; }

 private:
  enum Part : std::uint8_t { before, inside, after };

  /// Writes a key, a value or the start of one, preceded by a comma unless it is first in its list or object.
  void write(const std::string& text) {
    if (!comes_next_) parts_[part_] += ',';
    parts_[part_] += text;
  }
  bool scalar(const std::string& text) {
    write(text);
    end_value();
    return true;
  }
  bool start(const char* bracket, bool is_list) {
    write(bracket);
    comes_next_ = true;
    path_.open(is_list);
    return true;
  }
  bool end(const char* bracket, bool is_list) {
    parts_[part_] += bracket;
    path_.close(is_list);
    end_value();
    return true;
  }
  void end_value() {
    comes_next_ = false;
    if (path_.depth() == depth_ && part_ == inside) part_ = after;
  }

  const std::string& key_;
  std::string parts_[3];
  Part part_ = before;
  ValuePath path_;
  std::size_t depth_ = 0;   // depth of the key
  bool comes_next_ = true;  // no comma before what comes next
};

bool is_one_top_key(std::string_view keys) { return keys.find_first_of(",.") == keys.npos; }

/// Returns the value under `key` of the JSON object in `line` as JSON, "null" if it has none; nothing if the line is
/// wrong, or the value neither a string nor an integer.
std::optional<std::string> valid_json_value(std::string_view line, std::string_view key) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) return {};
  std::optional<std::string> found = "null";
  for (const auto& [name, value] : object) {
    if (name != key) continue;  // the last duplicate key wins
    found.reset();
    if (value.is_string()) found = json(value.get_string().value_unsafe()).dump();
    if (value.is_int64()) found = fmt::format("{}", value.get_int64().value_unsafe());
  }
  return found;
}

/// Returns the string under `key` of the JSON object in `line`, if it has the key once and nothing is wrong.
std::optional<std::string> valid_json_text(std::string_view line, std::string_view key) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) return {};
  std::optional<std::string> text;
  for (const auto& [name, value] : object) {
    std::string_view string;
    if (name != key) continue;
    if (text || value.get(string) != simdjson::SUCCESS) return {};
    text = string;
  }
  return text;
}

}  // namespace

std::string json_text(std::string_view line, const std::string& keys, const std::string& path, std::int64_t line_number,
                      const char* remedy) {
  if (auto text = is_one_top_key(keys) ? valid_json_text(line, keys) : std::nullopt) return std::move(*text);
  // Slower, for several and nested keys, and names the fault.
  KeyHandler handler(keys, fmt::format("{}:{}", path, line_number), remedy);
  json::sax_parse(line, &handler);
  return handler.finish();
}

std::optional<std::string> optional_json_text(std::string_view line, const std::string& key, const std::string& path,
                                              std::int64_t line_number) {
  if (key.find('.') == std::string::npos) {
    if (auto text = valid_json_text(line, key)) return text;
  }
  KeyHandler handler(key, fmt::format("{}:{}", path, line_number), "", /*accepts_null=*/true);
  json::sax_parse(line, &handler);
  return handler.first();
}

json parse_json(std::string_view text, const std::string& where, int max_depth) {
  try {
    if (max_depth == INT_MAX) return json::parse(text);  // a callback makes parsing slower
    return json::parse(text, [&](int depth, json::parse_event_t, json&) {
      TRIREME_CHECK(depth <= max_depth, DataError, "{} nests deeper than {} levels", where, max_depth);
      return true;
    });
  } catch (const json::exception& error) {
    throw DataError("{}: not JSON: {}", where, json_message(error.what()));
  }
}

json parse_json_line(std::string_view line, const std::string& where) {
  try {
    return json::parse(line);
  } catch (const json::parse_error& error) {
    throw DataError("{}:{}: not JSON: {}", where, error.byte, json_fault(error.what()));
  } catch (const json::exception& error) {
    throw DataError("{}: not JSON: {}", where, json_fault(error.what()));
  }
}

const json& json_member(const json& object, std::string_view name) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

const json& required_member(const json& object, const char* name, const std::string& where) {
  TRIREME_CHECK(object.is_object(), DataError, "{}: {} instead of an object", where, json_quotation(object));
  const auto found = object.find(name);
  TRIREME_CHECK(found != object.end(), DataError, "{}: there is no \"{}\"", where, name);
  return *found;
}

std::string json_quotation(const json& value) {
  return value.is_structured() ? fmt::format("an {}", value.type_name()) : shortened(json_dump(value));
}

std::string json_message(std::string_view message) {
  if (message.starts_with("[json.exception"))
    message.remove_prefix(std::min(message.find("] "), message.size() - 2) + 2);
  return shortened(message);
}

std::string json_fault(std::string_view message) {
  const std::size_t column = message.find(" column ");
  return json_message(column == message.npos ? message : message.substr(message.find(": ", column) + 2));
}

std::string json_line(const std::string& key, const std::string& text) { return json{{key, text}}.dump(); }

std::string with_json_text(std::string_view line, const std::string& key, const std::string& text) {
  MemberDivider divider(key);
  TRIREME_CHECK(json::sax_parse(line, &divider) && divider.found(), DataError, "no JSON object with the key '{}': {}",
                key, shortened(line));
  return divider.with(json(text).dump());
}

std::string json_value(std::string_view line, const std::string& key) {
  if (auto value = is_one_top_key(key) ? valid_json_value(line, key) : std::nullopt) return std::move(*value);
  // Slower, for other values.
  MemberDivider divider(key);
  return json::sax_parse(line, &divider) && divider.found() ? divider.value() : "null";
}

std::string overlap_line(const std::string& test, int n, const prepare::TestOverlap& overlap) {
  const double percent = 100 * static_cast<double>(overlap.overlapping) / static_cast<double>(overlap.ngrams);
  return json_dump(nlohmann::ordered_json{{"test", test},
                                          {"ngram", n},
                                          {"documents", overlap.documents},
                                          {"unique_ngrams", overlap.ngrams},
                                          {"overlapping", overlap.overlapping},
                                          {"percent", percent}});
}

}  // namespace trireme::io
