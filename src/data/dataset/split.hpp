#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

enum class Split { train, valid, test };
/// "training", "validation" or "test".
const char* name_of(Split split);

/// Unit in which the boundaries between the splits are counted.
enum class SplitBy {
  automatic,  ///< tokens if a corpus has fewer than 100 documents and is none of conversations, else documents
  documents,  ///< entire documents, as Megatron-LM does
  tokens      ///< tokens: a boundary may divide a document into two documents
};

/// Fractions of training, validation and test, which sum to 1, from "969,30,1", "90/10" or "1": up to three numbers of
/// any scale, missing ones 0. Throws ConfigError.
std::array<double, 3> parse_split(std::string_view text);

/// First and one past the last of `count` items in each split. Boundary i is the sum of the first i fractions times
/// `count`, rounded to the nearest integer, halves to the even one.
std::array<std::int64_t, 4> split_boundaries(const std::array<double, 3>& fractions, std::int64_t count);

/// Consecutive documents of a corpus, the first and last possibly incomplete.
struct DocumentRange {
  std::span<const std::int64_t> offsets;  ///< offsets of the entire corpus
  std::int64_t first_document = 0, documents = 0;
  std::int64_t begin_token = 0, end_token = 0;
  std::string name = {};  ///< for messages: "training samples of CORPUS"

  std::int64_t tokens() const { return end_token - begin_token; }
  /// Tokens [begin, end) of document 0 <= d < documents.
  std::int64_t begin(std::int64_t d) const { return std::max(offset(d), begin_token); }
  std::int64_t end(std::int64_t d) const { return std::min(offset(d + 1), end_token); }

 private:
  std::int64_t offset(std::int64_t d) const { return offsets[static_cast<std::size_t>(first_document + d)]; }
};

DocumentRange documents_of(const TokenStore& store, Split split, const std::array<double, 3>& fractions, SplitBy by);

}  // namespace trireme::data
