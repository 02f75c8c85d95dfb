#include "src/app/megatron/shell_arithmetic.hpp"

#include <cctype>
#include <charconv>
#include <stdexcept>

namespace trireme::app::megatron {
namespace {

/// Recursive descent over one sum. Throws std::domain_error where it has no value.
class Sum {
 public:
  Sum(std::string_view text, const std::function<std::optional<std::string>(const std::string&)>& value_of)
      : text_(text), value_of_(value_of) {}

  std::int64_t value() {
    const std::int64_t result = sum(0);
    check(next() == '\0');
    return result;
  }

 private:
  static void check(bool holds) {
    if (!holds) throw std::domain_error("not a sum");
  }

  /// Returns the next character that is no space, or zero at the end.
  char next() {
    while (i_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[i_])) != 0) ++i_;
    return i_ < text_.size() ? text_[i_] : '\0';
  }

  std::int64_t sum(int depth) {
    std::int64_t left = product(depth);
    for (char sign = next(); sign == '+' || sign == '-'; sign = next()) {
      ++i_;
      const std::int64_t right = product(depth);
      check(!(sign == '+' ? __builtin_add_overflow(left, right, &left) : __builtin_sub_overflow(left, right, &left)));
    }
    return left;
  }

  std::int64_t product(int depth) {
    std::int64_t left = factor(depth);
    for (char sign = next(); sign == '*' || sign == '/' || sign == '%'; sign = next()) {
      ++i_;
      const std::int64_t right = factor(depth);
      if (sign == '*') {
        check(!__builtin_mul_overflow(left, right, &left));
      } else {
        check(right > 0);
        left = sign == '/' ? left / right : left % right;
      }
    }
    return left;
  }

  std::int64_t factor(int depth) {
    check(depth < 100);
    const char first = next();
    if (first == '(') {
      ++i_;
      const std::int64_t result = sum(depth + 1);
      check(next() == ')');
      ++i_;
      return result;
    }
    if (first == '-' || first == '+') {
      ++i_;
      std::int64_t result = 0;
      check(!__builtin_sub_overflow(std::int64_t{0}, factor(depth + 1), &result));
      return first == '-' ? result : -result;
    }
    const std::string word = name_or_number();
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) return number(word);
    const std::optional<std::string> value = value_of_(word);
    check(value.has_value());
    return number(*value);
  }

  std::string name_or_number() {
    if (text_[i_] == '$') ++i_;
    const bool in_braces = i_ < text_.size() && text_[i_] == '{';
    if (in_braces) ++i_;
    std::string word;
    for (; i_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[i_])) != 0 || text_[i_] == '_'); ++i_) {
      word += text_[i_];
    }
    check(!word.empty() && (!in_braces || next() == '}'));
    if (in_braces) ++i_;
    return word;
  }

  static std::int64_t number(std::string_view text) {
    std::int64_t result = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), result);
    check(error == std::errc() && stop == text.data() + text.size());
    return result;
  }

  std::string_view text_;
  const std::function<std::optional<std::string>(const std::string&)>& value_of_;
  std::size_t i_ = 0;
};

}  // namespace

std::optional<std::int64_t> shell_sum(std::string_view text,
                                      const std::function<std::optional<std::string>(const std::string&)>& value_of) {
  try {
    return Sum(text, value_of).value();
  } catch (const std::domain_error&) {
    return {};
  }
}

}  // namespace trireme::app::megatron
