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

/// Removes all but the first of equal hashes.
void make_set(std::vector<std::uint64_t>& hashes);

/// |A and B| / |A or B| of two sets, whose elements are in any order; 1 if both are empty.
double jaccard(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);

struct MinHashOptions {
  int bands = 48;
  int rows = 6;  ///< hash functions of a band
  std::uint64_t seed = 1234;
};

/// MinHash (Broder 1997) with locality-sensitive hashing by bands. Each of bands x rows hash functions keeps the
/// smallest value over a set of shingles. Two sets agree in one function with probability J, their Jaccard similarity.
/// They agree in an entire band with J^rows, and in some band with 1 - (1 - J^rows)^bands: 0.9975 at J = 0.7 by
/// default. The functions are (x ^ s) * a modulo 2^32, with s and an odd a from the seed, of 32 bits of the shingle's
/// hash.
class MinHash {
 public:
  explicit MinHash(const MinHashOptions& options);

  int bands() const { return options_.bands; }

  /// Number of functions in a sketch, which keeps the lowest byte of their smallest values (Li and Koenig 2010).
  int sketch_bytes() const;

  /// A hash of each band's smallest values: sets with the same key in a band are candidates for being similar. `keys`
  /// has one element per band, `sketch` sketch_bytes() or none. Shingles may repeat. Thread-safe.
  void band_keys(std::span<const std::uint64_t> shingles, std::span<std::uint64_t> keys,
                 std::span<char> sketch = {}) const;

 private:
  MinHashOptions options_;
  std::vector<std::uint32_t> flips_;    // s and a of each function, in full blocks of what the processor
  std::vector<std::uint32_t> factors_;  // computes at a time
};

/// Number of equal bytes of two sketches of the same length. Each is equal with the Jaccard similarity as probability.
int agreeing_bytes(std::string_view a, std::string_view b);

/// Returns whether two sets with sketches of n bytes, so many of them equal, may have a Jaccard similarity above J.
/// True where at least n J - 6 sqrt(n J (1 - J)) bytes agree, six standard deviations below the mean at J. It wrongly
/// rejects one such pair in some hundred thousand. It rejects nearly all pairs whose similarity is far below.
bool may_be_similar(int agreeing, std::size_t sketch_bytes, double jaccard);

}  // namespace trireme::data
