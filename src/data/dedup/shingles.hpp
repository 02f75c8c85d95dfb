#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class ShingleUnit { characters, words };
enum class ShingleFolding {
  none,                 ///< the text as it is
  case_and_white_space  ///< in lower case, with one space for any white space
};

struct ShingleOptions {
  ShingleUnit unit = ShingleUnit::characters;
  int size = 5;
  ShingleFolding folding = ShingleFolding::none;
};

/// Hashes of 64 bits of all stretches of `size` successive characters (code points; bytes that are not UTF-8 count as
/// one each) or words, in order, repeated ones included. A text with fewer is one shingle; an empty one has none.
/// Replaces `hashes`.
void shingle_hashes(std::string_view text, const ShingleOptions& options, std::vector<std::uint64_t>& hashes);

/// Sorts and removes duplicates.
void make_set(std::vector<std::uint64_t>& hashes);

/// |A and B| / |A or B| of two sorted sets; 1 if both are empty.
double jaccard(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);

}  // namespace trireme::data
