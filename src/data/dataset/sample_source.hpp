#pragma once

#include <cstdint>
#include <span>

namespace trireme::data {

/// Training samples by number: what the loop reads from, whatever corpora, splits and blends stand behind it.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;
  /// Tokens of a sample, sequence length + 1 of them: inputs are all but the last, targets all but the first.
  virtual std::int64_t sample_length() const = 0;
  /// Writes sample `index`, 0 <= index < size(), to `tokens` of sample_length() elements. Safe from several threads.
  virtual void read(std::int64_t index, std::span<std::int32_t> tokens) const = 0;
  /// Throws DataError where files behind the samples have changed since they were opened: what was read may be
  /// anything.
  virtual void check_unchanged() const {}
};

}  // namespace trireme::data
