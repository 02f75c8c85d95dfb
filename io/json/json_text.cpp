#include "io/json/json_text.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/check.hpp"
#include "src/base/shortened.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Keeps the string under one key and passes over everything else without building it, however deep it nests.
class KeyHandler : public nlohmann::json_sax<json> {
 public:
  KeyHandler(const std::string& key, std::string location) : key_(key), location_(std::move(location)) {}

  std::string finish() {
    TRIREME_CHECK(text_.has_value(), DataError, "{}: the object has no key '{}'. Try another <json_key>", location_,
                  key_);
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
  int depth_ = 0;
  bool wanted_ = false;  // the next value is that of the key
  std::optional<std::string> text_;
};

}  // namespace

std::string json_text(std::string_view line, const std::string& key, const std::string& path,
                      std::int64_t line_number) {
  KeyHandler handler(key, fmt::format("{}:{}", path, line_number));
  json::sax_parse(line, &handler);
  return handler.finish();
}

std::string json_fault(std::string_view message) {
  // "[json.exception.parse_error.101] parse error at line 1, column 3: reason"; the line is not that of the file.
  const std::size_t column = message.find("column ");
  const std::size_t colon = message.find(": ", column == std::string_view::npos ? 0 : column);
  return shortened(colon == std::string_view::npos ? message : message.substr(colon + 2));
}

std::string json_line(const std::string& key, const std::string& text) { return json{{key, text}}.dump(); }

std::string with_json_text(std::string_view line, const std::string& key, const std::string& text) {
  auto object = nlohmann::ordered_json::parse(line);
  object[key] = text;
  return object.dump();
}

std::string json_value(std::string_view line, const std::string& key) {
  const json object = json::parse(line, nullptr, false);
  return object.is_object() && object.contains(key) ? object[key].dump() : "null";
}

std::string overlap_line(const std::string& test, int n, const prepare::TestOverlap& overlap) {
  const double percent = 100 * static_cast<double>(overlap.overlapping) / static_cast<double>(overlap.ngrams);
  return nlohmann::ordered_json{{"test", test},
                                {"ngram", n},
                                {"documents", overlap.documents},
                                {"unique_ngrams", overlap.ngrams},
                                {"overlapping", overlap.overlapping},
                                {"percent", percent}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trireme::io
