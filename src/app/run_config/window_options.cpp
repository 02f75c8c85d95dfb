#include "src/app/run_config/model_options.hpp"

#include "src/app/run_config/layer_choice.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::app {
namespace {

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
  if (!size) {
    // A preset's layers with a window, for another number of layers.
    std::string layers;
    for (int layer = 0; layer < config.layers && !config.window.layers.empty(); ++layer) {
      layers += config.window.of(layer) < 0 ? '0' : '1';
    }
    if (!layers.empty()) config.window = model::AttentionWindow::of_layers(config.window.left, layers);
    return;
  }
  problems.attempt([&] {
    config.window = {left_of(*size), ""};
    if (!skip_frequency || !config.window.any()) return;
    const LayerChoice layers = read_layer_choice("window-attn-skip-freq", *skip_frequency, config.layers);
    config.window = layers.frequency
                        ? model::AttentionWindow::every(config.window.left, *layers.frequency, config.layers)
                        : model::AttentionWindow::of_layers(config.window.left, layers.digits);
    problems.expect(config.window.any(),
                    fmt::format("--window-attn-skip-freq {} leaves no layer with a window: leave out --window-size",
                                *skip_frequency));
  });
}

}  // namespace trireme::app
