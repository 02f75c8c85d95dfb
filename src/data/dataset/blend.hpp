#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/data/dataset/sample_source.hpp"

namespace trireme::data {

/// Returns weights that sum to 1. Throws ConfigError for a weight that is not a positive number.
std::vector<double> normalized_weights(std::span<const double> weights);

/// Corpus of each sample of a blend, as in Megatron-LM. Sample k comes from the corpus with the greatest w_i · max(k,
/// 1) - (samples taken from i so far), the first on ties. It is independent of the number of samples.
class BlendOrder {
 public:
  BlendOrder(std::vector<double> weights, std::int64_t samples);
  std::int64_t size() const { return size_; }
  /// Corpus of sample k, and its number among that corpus' samples.
  std::pair<std::size_t, std::int64_t> at(std::int64_t k) const;
  /// Number of samples from each corpus among the first k <= size().
  std::vector<std::int64_t> counts(std::int64_t k) const;

 private:
  std::size_t choose(std::int64_t k, std::span<const std::int64_t> counts) const;

  std::vector<double> weights_;
  std::int64_t size_;
  std::vector<std::int64_t> block_counts_;  // [blocks, corpora]: before each block of samples
};

/// Samples of several sources in that order, with the fields of the first source.
class BlendedSamples final : public SampleSource {
 public:
  /// `sources[i]` has at least order.counts(order.size())[i] samples. All have one length and the same fields.
  BlendedSamples(BlendOrder order, std::vector<std::unique_ptr<SampleSource>> sources);
  std::int64_t size() const override { return order_.size(); }
  std::int64_t sequence_length() const override { return sources_.front()->sequence_length(); }
  SampleFields fields() const override { return sources_.front()->fields(); }
  void read(std::int64_t index, const SampleView& sample) const override;
  void check_unchanged() const override {
    for (const auto& source : sources_) source->check_unchanged();
  }

 private:
  BlendOrder order_;
  std::vector<std::unique_ptr<SampleSource>> sources_;
};

}  // namespace trireme::data
