#include "io/json/json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Keeps the string under one key and skips everything else without building it, at any nesting depth.
class KeyHandler : public nlohmann::json_sax<json> {
 public:
  KeyHandler(const std::string& key, std::string location, const char* remedy)
      : key_(key), location_(std::move(location)), remedy_(remedy) {}

  std::string finish() {
    TRIREME_CHECK(text_.has_value(), DataError, "{}: the object has no key '{}'{}", location_, key_, remedy_);
    return std::move(*text_);
  }

  bool key(std::string& name) override {
    wanted_ = depth_ == 1 && name == key_;
    TRIREME_CHECK(!wanted_ || !text_, DataError, "{}: the key '{}' occurs twice", location_, key_);
    return true;
  }
  bool string(std::string& text) override {
    check_type("a string", true);
    if (std::exchange(wanted_, false)) text_ = std::move(text);
    return true;
  }
  bool null() override { return check_type("null"); }
  bool boolean(bool) override { return check_type("a boolean"); }
  bool number_integer(std::int64_t) override { return check_type("a number"); }
  bool number_unsigned(std::uint64_t) override { return check_type("a number"); }
  bool number_float(double, const std::string&) override { return check_type("a number"); }
  bool binary(json::binary_t&) override { return check_type("binary data"); }
  bool start_object(std::size_t) override {
    if (depth_ > 0) check_type("an object");
    ++depth_;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    check_type("an array");
    ++depth_;
    return true;
  }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw DataError("{}:{}: not JSON: {}", location_, byte, json_fault(error.what()));
  }

 private:
  bool check_type(const char* what, bool is_string = false) {
    TRIREME_CHECK(depth_ > 0, DataError, "{}: the line is {}, not an object", location_, what);
    TRIREME_CHECK(!wanted_ || is_string, DataError, "{}: the value of '{}' is {}, not a string", location_, key_, what);
    return true;
  }

  const std::string& key_;
  std::string location_;
  const char* remedy_;
  int depth_ = 0;
  bool wanted_ = false;  // the next value is that of the key
  std::optional<std::string> text_;
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
    if (depth_ != 1 || name != key_) return true;
    // The last duplicate key wins.
    parts_[before] += std::exchange(parts_[inside], {}) + std::exchange(parts_[after], {});
    part_ = inside;
    return true;
  }
  bool string(std::string& text) override { return scalar(json(text).dump()); }
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(std::int64_t number) override { return scalar(fmt::format("{}", number)); }
  bool number_unsigned(std::uint64_t number) override { return scalar(fmt::format("{}", number)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return start("{"); }
  bool end_object() override { return end("}"); }
  bool start_array(std::size_t) override { return start("["); }
  bool end_array() override { return end("]"); }
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
  bool start(const char* bracket) {
    write(bracket);
    comes_next_ = true;
    ++depth_;
    return true;
  }
  bool end(const char* bracket) {
    parts_[part_] += bracket;
    --depth_;
    end_value();
    return true;
  }
  void end_value() {
    comes_next_ = false;
    if (depth_ == 1 && part_ == inside) part_ = after;
  }

  const std::string& key_;
  std::string parts_[3];
  Part part_ = before;
  int depth_ = 0;
  bool comes_next_ = true;  // no comma before what comes next
};

}  // namespace

std::string json_text(std::string_view line, const std::string& key, const std::string& path, std::int64_t line_number,
                      const char* remedy) {
  KeyHandler handler(key, fmt::format("{}:{}", path, line_number), remedy);
  json::sax_parse(line, &handler);
  return handler.finish();
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
