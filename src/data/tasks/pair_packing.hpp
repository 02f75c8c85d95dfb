#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::data {

/// Ids of the tokens around two texts.
struct PairTokens {
  std::int32_t cls = -1, sep = -1, pad = -1;
};

/// Tokens of one sample and their segments: 0 to the first [SEP], 1 after it.
struct PackedPair {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> token_types;
};

/// Returns [CLS] A [SEP] B [SEP], or [CLS] A [SEP] without a B, unpadded. If the part before the last [SEP] has at
/// least `max_length` tokens, it is truncated to max_length - 1 and followed by [SEP], of segment 1 if there is a B.
/// This matches Megatron-LM, even if the cut is inside A.
PackedPair pack_pair(std::span<const std::int32_t> a, std::optional<std::span<const std::int32_t>> b,
                     std::int64_t max_length, const PairTokens& tokens);

/// Lists of tokens in one block of memory.
class TokenLists {
 public:
  /// Adds a list. Returns its number.
  std::int64_t add(std::span<const std::int32_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ends_.push_back(tokens_.size());
    return std::ssize(ends_) - 1;
  }
  std::span<const std::int32_t> operator[](std::int64_t list) const {
    const auto at = static_cast<std::size_t>(list);
    const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
    return std::span(tokens_).subspan(begin, ends_[at] - begin);
  }
  std::int64_t size() const { return std::ssize(ends_); }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;
};

}  // namespace trireme::data
