#include "src/app/run_config/model_options.hpp"

#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

#include "src/base/parse_number.hpp"

namespace trireme::app {
namespace {

/// Recursive-descent parser for a Python list of 0 and 1, with sums and multiples of lists: [1,1,0], [1]*3+[0],
/// ([1,0])*2.
class LayerList {
 public:
  explicit LayerList(std::string_view text) : text_(text) {}

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
    TRIREME_CHECK(holds, ConfigError,
                  "--window-attn-skip-freq '{}' must be N or a list of 0 and 1, at most {} of them, as in [1,1,0]*4",
                  text_, model::max_layers);
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

  std::string_view text_;
  std::size_t place_ = 0;
};

std::string without_blanks(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

/// Returns LEFT of "LEFT,0", "(LEFT,0)" or "LEFT".
std::int64_t left_of(const std::string& given) {
  std::string text = without_blanks(given);
  if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);
  const std::size_t comma = text.find(',');
  const auto left = parse_number<std::int64_t>(text.substr(0, comma));
  const auto right = comma == std::string::npos ? 0 : parse_number<std::int64_t>(text.substr(comma + 1));
  TRIREME_CHECK(left && right && *left >= -1, ConfigError,
                "--window-size '{}' must be LEFT,0: the number of earlier positions that a token attends to, or -1 "
                "for all",
                given);
  TRIREME_CHECK(*right == 0, ConfigError,
                "--window-size '{}' would let a causal model attend to {} later positions: give {},0", given, *right,
                *left);
  return *left;
}

model::AttentionWindow window_of(std::int64_t left, const std::string& layers, int count) {
  const std::string text = without_blanks(layers);
  if (const auto frequency = parse_number<std::int64_t>(text)) {
    TRIREME_CHECK(*frequency >= 1, ConfigError, "--window-attn-skip-freq {} must be at least 1", *frequency);
    return model::AttentionWindow::every(left, *frequency, count);
  }
  std::string digits = LayerList(text).digits();
  TRIREME_CHECK(std::ssize(digits) == count, ConfigError,
                "--window-attn-skip-freq '{}' lists {} layers of {}: give 0 or 1 for each", layers, digits.size(),
                count);
  return model::AttentionWindow::of_layers(left, std::move(digits));
}

}  // namespace

void WindowOptions::declare(Options& options) {
  options.add("window-size", &size, "LEFT,0",
              "Sliding-window attention: each token attends to itself and the LEFT tokens before it; -1: all of them.");
  options.add(
      "window-attn-skip-freq", &skip_frequency, "N",
      "Every Nth layer attends to all earlier tokens despite --window-size; or a list of 1 (window) and 0 for the "
      "layers, as in [1,1,0]*4.");
}

void WindowOptions::apply(model::ModelConfig& config, Problems& problems) const {
  problems.expect(size || !skip_frequency, "--window-attn-skip-freq needs --window-size");
  if (!size) return;
  problems.attempt([&] {
    config.window = {left_of(*size), ""};
    if (!skip_frequency || !config.window.any()) return;
    config.window = window_of(config.window.left, *skip_frequency, config.layers);
    problems.expect(config.window.any(),
                    fmt::format("--window-attn-skip-freq {} leaves no layer with a window: leave out --window-size",
                                *skip_frequency));
  });
}

}  // namespace trireme::app
