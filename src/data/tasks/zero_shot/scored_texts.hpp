#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/data/dataset/sample_source.hpp"

namespace trireme::data {

/// Results of one text: over its scored tokens.
struct TextScore {
  double loss = 0;          ///< sum of the losses, -log p
  double squared_loss = 0;  ///< sum of their squares
  std::int64_t wrong = 0;   ///< tokens that are not the most likely ones; ties go to the lowest id
};

/// Texts given as token ids, each predicted token by token, of which the last few are scored. The ids of text i are
/// ids(i); the model reads all but the last. Texts may share their ids.
class ScoredTexts final : public SampleSource {
 public:
  /// `padding` follows texts that are shorter than the samples read.
  explicit ScoredTexts(std::int32_t padding) : padding_(padding) {}

  /// Appends ids, and returns the position of their first.
  std::int64_t append_ids(std::span<const std::int32_t> ids);
  /// Adds the text of `count` >= 1 ids from position `begin` on, of which the last `scored` < count are scored.
  void add(std::int64_t begin, std::int64_t count, std::int64_t scored);
  /// Adds a text with its own ids.
  void add(std::span<const std::int32_t> ids, std::int64_t scored) { add(append_ids(ids), std::ssize(ids), scored); }

  std::int64_t size() const override { return std::ssize(texts_); }
  std::span<const std::int32_t> ids(std::int64_t index) const;
  /// Positions that the model reads: the number of ids minus one.
  std::int64_t length(std::int64_t index) const override { return text(index).count - 1; }
  /// Number of scored tokens of a text, and in total.
  std::int64_t scored(std::int64_t index) const { return text(index).scored; }
  std::int64_t scored() const { return scored_; }
  std::int32_t padding() const { return padding_; }

  /// The longest text's length.
  std::int64_t sequence_length() const override { return max_length_; }
  SampleFields fields() const override { return {.length = true}; }
  /// A sample longer than the text is padded, without labels. ShapeError if it is shorter.
  void read(std::int64_t index, const SampleView& sample) const override;

 private:
  struct Text {
    std::int64_t begin, count, scored;
  };
  const Text& text(std::int64_t index) const { return texts_[static_cast<std::size_t>(index)]; }

  std::int32_t padding_;
  std::vector<std::int32_t> ids_;
  std::vector<Text> texts_;
  std::int64_t scored_ = 0;
  std::int64_t max_length_ = 0;
};

/// Maximum text length in positions, and the handling of longer texts.
struct LengthLimit {
  std::int64_t max_length = 0;
  bool cut = false;  ///< truncate them on the left; otherwise they are errors
};

/// Truncates the ids of a text, the last `scored` of which are scored, to the limit. DataError if they exceed it and
/// truncation is disallowed or would remove scored tokens.
void fit(const LengthLimit& limit, std::int64_t scored, std::vector<std::int32_t>& ids);

/// Mean of n numbers and the standard error of the mean, s / sqrt(n) with s^2 = sum of (x - mean)^2 / (n - 1). The
/// error is NaN for one number.
struct Mean {
  double value = 0;
  double standard_error = 0;
  static Mean of(double sum, double sum_of_squares, std::int64_t n);
};

/// Sum of scores.
TextScore total(std::span<const TextScore> scores);

}  // namespace trireme::data
