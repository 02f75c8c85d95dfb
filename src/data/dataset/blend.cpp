#include "src/data/dataset/blend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

// Only the counts before each block are kept; a read recomputes the choices within its block. This takes a few
// microseconds per sample, and a hundredth of the memory of storing every choice.
constexpr std::int64_t block_samples = 128;

}  // namespace

std::vector<double> normalized_weights(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    TRIREME_CHECK(std::isfinite(weight) && weight > 0, ConfigError,
                  "a corpus of <data_path> has weight {}; weights must be positive numbers", weight);
    sum += weight;
  }
  TRIREME_CHECK(std::isfinite(sum), ConfigError,
                "the weights of <data_path> add up to more than {:.1e}. Try fractions, such as 0.7 and 0.3",
                std::numeric_limits<double>::max());
  std::vector<double> normalized;
  for (const double weight : weights) {
    normalized.push_back(weight / sum);
    TRIREME_CHECK(normalized.back() > 0, ConfigError, "a corpus of <data_path> has weight {} of {}, too small to count",
                  weight, sum);
  }
  return normalized;
}

BlendOrder::BlendOrder(std::vector<double> weights, std::int64_t samples)
    : weights_(std::move(weights)), size_(samples) {
  std::vector<std::int64_t> counts(weights_.size());
  for (std::int64_t k = 0; k < size_; ++k) {
    if (k % block_samples == 0) block_counts_.insert(block_counts_.end(), counts.begin(), counts.end());
    ++counts[choose(k, counts)];
  }
  block_counts_.insert(block_counts_.end(), counts.begin(), counts.end());
}

std::size_t BlendOrder::choose(std::int64_t k, std::span<const std::int64_t> counts) const {
  const auto wanted = static_cast<double>(std::max<std::int64_t>(k, 1));
  const auto deficit = [&](std::size_t i) { return weights_[i] * wanted - static_cast<double>(counts[i]); };
  std::size_t best = 0;
  double max_deficit = deficit(0);
  for (std::size_t i = 1; i < weights_.size(); ++i) {
    if (const double value = deficit(i); value > max_deficit) {
      best = i;
      max_deficit = value;
    }
  }
  return best;
}

std::vector<std::int64_t> BlendOrder::counts(std::int64_t k) const {
  const auto block = block_counts_.begin() + k / block_samples * static_cast<std::int64_t>(weights_.size());
  std::vector<std::int64_t> counts(block, block + static_cast<std::int64_t>(weights_.size()));
  for (std::int64_t i = k / block_samples * block_samples; i < k; ++i) ++counts[choose(i, counts)];
  return counts;
}

std::pair<std::size_t, std::int64_t> BlendOrder::at(std::int64_t k) const {
  const std::vector<std::int64_t> before = counts(k);
  const std::size_t corpus = choose(k, before);
  return {corpus, before[corpus]};
}

BlendedSamples::BlendedSamples(BlendOrder order, std::vector<std::unique_ptr<SampleSource>> sources)
    : order_(std::move(order)), sources_(std::move(sources)) {}

void BlendedSamples::read(std::int64_t index, const SampleView& sample) const {
  TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
  const auto [source, source_index] = order_.at(index);
  sources_[source]->read(source_index, sample);
}

}  // namespace trireme::data
