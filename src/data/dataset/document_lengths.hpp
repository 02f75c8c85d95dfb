#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Statistics of the lengths of documents, in tokens, in a megabyte of memory for any number of them.
class DocumentLengths {
 public:
  void add(std::int64_t length);
  void add(const TokenStore& store);
  void add(const DocumentLengths& other);

  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t least() const { return least_; }        ///< 0 without documents
  std::int64_t greatest() const { return greatest_; }  ///< likewise
  double mean() const;
  /// Returns the least length that at least `share` of the documents do not exceed, 0 <= share <= 1. Lengths from 4096
  /// on are rounded down to 12 significant bits.
  std::int64_t quantile(double share) const;

  /// Documents of lengths from `first` to `last`: 0, 1, 2 to 3, 4 to 7 ...
  struct Bin {
    std::int64_t first = 0, last = 0;
    std::int64_t documents = 0, tokens = 0;
  };
  /// Returns the bins from that of the least length to that of the greatest.
  std::vector<Bin> bins() const;

 private:
  static constexpr std::size_t exact = 4096, per_octave = exact / 2, octaves = 63 - 12;

  std::vector<std::int64_t> counts_ = std::vector<std::int64_t>(exact + octaves * per_octave);
  std::array<std::int64_t, 64> bin_documents_{}, bin_tokens_{};  // by the bits of the length
  std::int64_t documents_ = 0, tokens_ = 0, least_ = 0, greatest_ = 0;
};

}  // namespace trireme::data
