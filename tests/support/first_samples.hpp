#pragma once

#include "src/data/dataset/sample_source.hpp"

namespace trireme::test {

/// The first samples of another source.
class FirstSamples final : public data::SampleSource {
 public:
  FirstSamples(const data::SampleSource& source, std::int64_t size) : source_(source), size_(size) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return source_.sequence_length(); }
  std::int64_t length(std::int64_t index) const override { return source_.length(index); }
  data::SampleFields fields() const override { return source_.fields(); }
  void read(std::int64_t index, const data::SampleView& sample) const override { source_.read(index, sample); }

 private:
  const data::SampleSource& source_;
  std::int64_t size_;
};

}  // namespace trireme::test
