#include "src/app/run_config/layer_choice.hpp"

#include <cctype>
#include <iterator>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {
namespace {

/// Recursive-descent parser for a list of 0 and 1.
class LayerList {
 public:
  LayerList(std::string_view option, std::string_view text) : option_(option), text_(text) {}

  /// Returns the digits. Throws ConfigError if the text is not such a list, or is longer than any model.
  std::string digits() {
    std::string result = sum(0);
    check(at_end());
    return result;
  }

 private:
  bool at_end() const { return place_ == text_.size(); }
  /// Takes the next character if it is `wanted`.
  bool take(char wanted) {
    if (at_end() || text_[place_] != wanted) return false;
    ++place_;
    return true;
  }
  void check(bool holds) const {
    TRIREME_CHECK(holds, ConfigError, "--{} '{}' must be N or a list of 0 and 1, at most {} of them, as in [1,1,0]*4",
                  option_, text_, model::max_layers);
  }

  std::string sum(int depth) {
    std::string left = product(depth);
    while (take('+')) left += product(depth);
    check(left.size() <= model::max_layers);
    return left;
  }
  std::string product(int depth) {
    const std::string once = factor(depth);
    int times = 1;
    while (take('*')) {
      const std::size_t begin = place_;
      while (!at_end() && std::isdigit(static_cast<unsigned char>(text_[place_])) != 0) ++place_;
      const auto factor = parse_number<int>(text_.substr(begin, place_ - begin));
      check(factor && *factor <= model::max_layers);
      times *= *factor;
      check(times <= model::max_layers);
    }
    std::string result;
    for (int i = 0; i < times && result.size() <= model::max_layers; ++i) result += once;
    return result;
  }
  std::string factor(int depth) {
    check(depth < 100);
    if (take('(')) {
      std::string inner = sum(depth + 1);
      check(take(')'));
      return inner;
    }
    check(take('['));
    std::string digits;
    while (!take(']')) {
      check(digits.empty() || take(','));
      digits += take('0') ? '0' : '1';
      check(digits.back() == '0' || take('1'));
    }
    return digits;
  }

  std::string_view option_, text_;
  std::size_t place_ = 0;
};

}  // namespace

std::string without_blanks(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

LayerChoice read_layer_choice(std::string_view option, const std::string& text, int count) {
  const std::string given = without_blanks(text);
  if (const auto frequency = parse_number<std::int64_t>(given)) {
    TRIREME_CHECK(*frequency >= 1, ConfigError, "--{} {} must be at least 1", option, *frequency);
    return {.frequency = frequency, .digits = {}};
  }
  std::string digits = LayerList(option, given).digits();
  TRIREME_CHECK(std::ssize(digits) == count, ConfigError, "--{} '{}' lists {} layers of {}: give 0 or 1 for each",
                option, text, digits.size(), count);
  return {.frequency = {}, .digits = std::move(digits)};
}

}  // namespace trireme::app
