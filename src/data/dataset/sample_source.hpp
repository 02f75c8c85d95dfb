#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// One sample of s positions, for its source to fill.
struct SampleView {
  std::span<std::int32_t> tokens;  ///< [s]
  std::span<std::int32_t> labels;  ///< [s] token to predict at each position; negative: none, its loss weight is 0
};

/// Memory of one sample.
class SampleBuffer {
 public:
  explicit SampleBuffer(std::int64_t sequence_length) {
    const auto s = static_cast<std::size_t>(sequence_length);
    memory_.resize(2 * s);
    view_ = {std::span(memory_).first(s), std::span(memory_).last(s)};
  }
  SampleBuffer(const SampleBuffer&) = delete;
  SampleBuffer& operator=(const SampleBuffer&) = delete;
  const SampleView& view() const { return view_; }

 private:
  std::vector<std::int32_t> memory_;
  SampleView view_;
};

/// Training samples by number, whatever corpora, splits and blends stand behind them.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;
  /// Positions of a sample.
  virtual std::int64_t sequence_length() const = 0;
  /// Writes sample `index`, 0 <= index < size(), to `sample` of sequence_length() positions. Safe from several threads.
  virtual void read(std::int64_t index, const SampleView& sample) const = 0;
  /// Throws DataError where files behind the samples have changed since they were opened: what was read may be
  /// anything.
  virtual void check_unchanged() const {}
};

}  // namespace trireme::data
