#include "src/train/fp8_history.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::train {
namespace {

constexpr std::string_view history_prefix = "state.fp8_amax.";  // then the layer
constexpr std::size_t tensors_of_layer = parallel::Fp8Scaling::weights_of_layer * parallel::Fp8Scaling::roles;
constexpr std::string_view no_entries = "-";

}  // namespace

void Fp8History::add(std::span<const double> seen, const parallel::Fp8Options& options) {
  windows_.resize(seen.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    Window& window = windows_[i];
    for (Entry& entry : window) entry.age += 1;
    if (seen[i] > 0) {
      const int exponent = fp8_exponent_of(static_cast<float>(seen[i]));
      std::erase_if(window,
                    [&](const Entry& entry) { return !options.largest_of_history || entry.exponent <= exponent; });
      window.push_back({exponent, 0});
    }
    while (window.size() > 1 && window.front().age >= options.history) window.erase(window.begin());
  }
}

std::vector<double> Fp8History::amax(const parallel::Fp8Options& options) const {
  std::vector<double> amax;
  for (const Window& window : windows_) {
    const Entry* entry = window.empty() ? nullptr : options.largest_of_history ? &window.front() : &window.back();
    amax.push_back(entry == nullptr ? 0 : std::ldexp(1.75, entry->exponent));
  }
  return amax;
}

bool Fp8History::covers(const parallel::Fp8Options& options, int layers) const {
  for (int layer = options.first_layers; layer < layers - options.last_layers; ++layer) {
    const std::size_t first = static_cast<std::size_t>(layer) * tensors_of_layer;
    if (first + tensors_of_layer > windows_.size()) return false;
    // Every layer has attention, some of whose magnitudes are not 0.
    if (std::ranges::all_of(std::span(windows_).subspan(first, tensors_of_layer), &Window::empty)) return false;
  }
  return true;
}

void Fp8History::put(Attributes& attributes) const {
  for (std::size_t layer = 0; layer * tensors_of_layer < windows_.size(); ++layer) {
    const auto windows = std::span(windows_).subspan(layer * tensors_of_layer, tensors_of_layer);
    if (std::ranges::all_of(windows, &Window::empty)) continue;
    std::string text;
    for (const Window& window : windows) {
      if (!text.empty()) text += ' ';
      if (window.empty()) text += no_entries;
      for (const Entry& entry : window)
        text += fmt::format("{}{}:{}", &entry == &window.front() ? "" : ",", entry.exponent, entry.age);
    }
    attributes.put(fmt::format("{}{}", history_prefix, layer), text);
  }
}

Fp8History Fp8History::from(const Attributes& attributes) {
  Fp8History history;
  for (const auto& [name, text] : attributes.texts()) {
    if (!name.starts_with(history_prefix)) continue;
    const std::optional<int> layer = parse_number<int>(std::string_view(name).substr(history_prefix.size()));
    attributes.require(layer && *layer >= 0 && *layer < 100'000, name, "a name that ends with the number of a layer");
    const std::vector<std::string_view> words = split(text, ' ');
    constexpr const char* expected = "for each tensor - or pairs EXPONENT:AGE";
    attributes.require(words.size() == tensors_of_layer, name, expected);
    const std::size_t first = static_cast<std::size_t>(*layer) * tensors_of_layer;
    if (history.windows_.size() < first + tensors_of_layer) history.windows_.resize(first + tensors_of_layer);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == no_entries) continue;
      Window& window = history.windows_[first + i];
      for (const std::string_view pair : split(words[i], ',')) {
        const std::vector<std::string_view> numbers = split(pair, ':');
        attributes.require(numbers.size() == 2, name, expected);
        const auto exponent = parse_number<int>(numbers.front()), age = parse_number<int>(numbers.back());
        attributes.require(exponent && std::abs(*exponent) <= 100 && age && *age >= 0, name, expected);
        window.push_back({*exponent, *age});
      }
      attributes.require(!window.empty(), name, expected);
    }
  }
  return history;
}

}  // namespace trireme::train
