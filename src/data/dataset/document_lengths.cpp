#include "src/data/dataset/document_lengths.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace trireme::data {

void DocumentLengths::add(std::int64_t length) {
  const auto size = static_cast<std::uint64_t>(length);
  const auto bits = static_cast<std::size_t>(std::bit_width(size));
  const std::size_t dropped = size < exact ? 0 : bits - 12;
  const std::size_t first = dropped == 0 ? 0 : exact + (dropped - 1) * per_octave - per_octave;
  ++counts_[first + (size >> dropped)];
  ++bin_documents_[bits];
  bin_tokens_[bits] += length;
  least_ = documents_ == 0 ? length : std::min(least_, length);
  greatest_ = std::max(greatest_, length);
  ++documents_;
  tokens_ += length;
}

void DocumentLengths::add(const TokenStore& store) {
  const std::span<const std::int64_t> offsets = store.document_offsets();
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) add(offsets[i + 1] - offsets[i]);
}

void DocumentLengths::add(const DocumentLengths& other) {
  if (other.documents_ == 0) return;
  const auto sum = [](auto& to, const auto& from) { std::ranges::transform(to, from, to.begin(), std::plus()); };
  sum(counts_, other.counts_);
  sum(bin_documents_, other.bin_documents_);
  sum(bin_tokens_, other.bin_tokens_);
  least_ = documents_ == 0 ? other.least_ : std::min(least_, other.least_);
  greatest_ = std::max(greatest_, other.greatest_);
  documents_ += other.documents_;
  tokens_ += other.tokens_;
}

double DocumentLengths::mean() const {
  return documents_ == 0 ? 0 : static_cast<double>(tokens_) / static_cast<double>(documents_);
}

std::int64_t DocumentLengths::quantile(double share) const {
  const auto wanted = std::max<std::int64_t>(1, std::llround(std::ceil(share * static_cast<double>(documents_))));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    if (count < wanted) continue;
    if (i < exact) return static_cast<std::int64_t>(i);
    const std::size_t dropped = (i - exact) / per_octave + 1;
    const std::size_t size = (per_octave + (i - exact) % per_octave) << dropped;
    return std::max(static_cast<std::int64_t>(size), least_);
  }
  return greatest_;
}

std::vector<DocumentLengths::Bin> DocumentLengths::bins() const {
  std::vector<Bin> bins;
  if (documents_ == 0) return bins;
  const auto bits_of = [](std::int64_t length) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(length)));
  };
  for (int bits = bits_of(least_); bits <= bits_of(greatest_); ++bits) {
    const auto i = static_cast<std::size_t>(bits);
    const std::uint64_t end = std::uint64_t{1} << bits;
    bins.push_back(
        {static_cast<std::int64_t>(end / 2), static_cast<std::int64_t>(end - 1), bin_documents_[i], bin_tokens_[i]});
  }
  return bins;
}

}  // namespace trireme::data
