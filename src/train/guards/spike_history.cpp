#include "src/train/guards/spike_history.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::train {
namespace {

constexpr const char* losses_name = "state.spike_losses";
constexpr const char* in_row_name = "state.spike_in_row";
constexpr const char* first_high_name = "state.spike_first";
constexpr const char* rewinds_name = "state.rewinds";

/// The numbers of FROM:TO:FIRST:END.
std::optional<Rewind> rewind_from(std::string_view text) {
  std::array<std::int64_t, 4> numbers{};
  const std::vector<std::string_view> words = split(text, ':');
  if (words.size() != numbers.size()) return {};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::optional<std::int64_t> number = parse_number<std::int64_t>(words[i]);
    if (!number || *number < 0) return {};
    numbers[i] = *number;
  }
  const Rewind rewind{numbers[0], numbers[1], numbers[2], numbers[3]};
  if (rewind.to >= rewind.from || rewind.first_sample > rewind.end_sample) return {};
  return rewind;
}

}  // namespace

SpikeHistory::Moments SpikeHistory::moments() const {
  const auto count = static_cast<double>(losses_.size());
  Moments moments;
  for (const double loss : losses_) moments.mean += loss / count;
  for (const double loss : losses_) {
    moments.deviation += (loss - moments.mean) * (loss - moments.mean) / count;
  }
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

void SpikeHistory::add(std::int64_t iteration, double loss, bool is_bad, const RewindOptions& options) {
  const auto window = static_cast<std::size_t>(options.window);
  const auto exceeds = [&] {
    if (losses_.size() < window) return false;
    const auto [mean, deviation] = moments();
    return loss > mean + options.z_score * deviation;
  };
  if (is_bad || !std::isfinite(loss) || exceeds()) {
    if (in_row_++ == 0) first_high_ = iteration;
    return;
  }
  in_row_ = 0;
  losses_.push_back(loss);
  if (losses_.size() > window) losses_.erase(losses_.begin());
}

void SpikeHistory::add(std::vector<Rewind> earlier, const Rewind& rewind) {
  rewinds_ = std::move(earlier);
  rewinds_.push_back(rewind);
}

void SpikeHistory::put(Attributes& attributes) const {
  if (!losses_.empty()) attributes.put(losses_name, fmt::format("{}", fmt::join(losses_, " ")));
  if (in_row_ > 0) {
    attributes.put(in_row_name, in_row_);
    attributes.put(first_high_name, first_high_);
  }
  if (rewinds_.empty()) return;
  std::string text;
  for (const Rewind& rewind : rewinds_) {
    text += fmt::format("{}{}:{}:{}:{}", text.empty() ? "" : " ", rewind.from, rewind.to, rewind.first_sample,
                        rewind.end_sample);
  }
  attributes.put(rewinds_name, text);
}

SpikeHistory SpikeHistory::from(const Attributes& attributes) {
  SpikeHistory history;
  const auto for_each_word = [&](const char* name, const auto& read) {
    if (!attributes.contains(name)) return;
    for (const std::string_view word : split(attributes.texts().at(name), ' ')) read(word);
  };
  for_each_word(losses_name, [&](std::string_view word) {
    const std::optional<double> loss = parse_number<double>(word);
    attributes.require(loss && std::isfinite(*loss), losses_name, "losses");
    history.losses_.push_back(*loss);
  });
  for_each_word(rewinds_name, [&](std::string_view word) {
    const std::optional<Rewind> rewind = rewind_from(word);
    attributes.require(rewind.has_value(), rewinds_name, "FROM:TO:FIRST_SAMPLE:END_SAMPLE of each rewind");
    history.rewinds_.push_back(*rewind);
  });
  if (attributes.contains(in_row_name)) {
    history.in_row_ = attributes.get(in_row_name, 1);
    history.first_high_ = attributes.get(first_high_name, std::int64_t{1});
  }
  return history;
}

}  // namespace trireme::train
