#include "src/data/dedup/minhash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

std::uint64_t hash_of(const char* begin, const char* end) {
  return hash64(begin, static_cast<std::size_t>(end - begin), 0);
}

const char* next_character(const char* at, const char* end) {
  return at + std::max(1, decode_utf8(at, end).size_bytes);
}

void add_characters(std::string_view text, int size, std::vector<std::uint64_t>& hashes) {
  const char* const text_end = text.data() + text.size();
  const char* begin = text.data();
  const char* end = begin;
  for (int i = 0; i < size && end != text_end; ++i) end = next_character(end, text_end);
  for (;;) {
    if (end - begin == size) {  // also all that begin before the next character of several bytes
      const std::size_t more = ascii_size({end, text_end});
      hashes.resize(hashes.size() + more + 1);
      hash64_windows(begin, static_cast<std::size_t>(size), std::span(hashes).last(more + 1));
      begin += more;
      end += more;
    } else {
      hashes.push_back(hash_of(begin, end));
    }
    if (end == text_end) return;
    begin = next_character(begin, text_end);
    end = next_character(end, text_end);
  }
}

void add_words(std::string_view text, int size, std::vector<std::uint64_t>& hashes) {
  std::vector<std::size_t> begins;  // first bytes of the last `size` words, by their number modulo `size`
  const auto period = static_cast<std::size_t>(size);
  std::size_t count = 0;
  std::size_t last_end = 0;
  for (WordReader words(text); words.next(); ++count) {
    if (count < period) begins.push_back(words.begin());
    begins[count % period] = words.begin();
    last_end = words.end();
    if (count + 1 < period) continue;
    hashes.push_back(hash_of(text.data() + begins[(count + 1) % period], text.data() + words.end()));
  }
  if (hashes.empty() && count > 0) hashes.push_back(hash_of(text.data() + begins[0], text.data() + last_end));
}

/// A set of at most `max_size` hashes. At most a quarter of its slots are taken, so that few searches go past the
/// first.
class HashTable {
 public:
  explicit HashTable(std::size_t max_size)
      : shift_(64 - std::bit_width(4 * max_size | 1)), slots_(std::size_t{1} << (64 - shift_)) {}

  /// Returns whether the hash was not in the set.
  bool insert(std::uint64_t hash) {
    if (hash == none) [[unlikely]]
      return !std::exchange(has_none_, true);
    return std::exchange(slots_[slot_of(hash)], hash) == none;
  }
  bool contains(std::uint64_t hash) const { return hash == none ? has_none_ : slots_[slot_of(hash)] == hash; }

 private:
  /// Slot of the hash, or the free one for it. The highest bits of a hash say where the search begins.
  std::size_t slot_of(std::uint64_t hash) const {
    std::size_t at = hash >> shift_;
    // One branch for both ends of a search, since no processor can predict which of them it is.
    const auto holds_another = [&] { return slots_[at] & -std::uint64_t{slots_[at] != hash}; };
    while (holds_another() != 0) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  static constexpr std::uint64_t none = 0;
  int shift_;
  std::vector<std::uint64_t> slots_;
  bool has_none_ = false;
};

/// Returns the lowest 32 bits of the hashes, without most of the repeated ones: a table keeps those met last.
std::vector<std::uint32_t> low_bits(std::span<const std::uint64_t> hashes) {
  constexpr std::size_t slots = 1 << 12;
  std::array<std::uint32_t, slots> met{1};  // a value is in the slot of its lowest bits; in 0 is 1, which is none
  std::vector<std::uint32_t> values(hashes.size());
  std::size_t count = 0;
  for (const std::uint64_t hash : hashes) {
    const auto value = static_cast<std::uint32_t>(hash);
    std::uint32_t& slot = met[value % slots];
    values[count] = value;
    count += slot != value ? 1 : 0;
    slot = value;
  }
  values.resize(count);
  return values;
}

// Two vectors per step hide the latency of the product; all fit in registers.
using Lanes = std::uint32_t __attribute__((vector_size(64)));
constexpr std::size_t lanes = sizeof(Lanes) / sizeof(std::uint32_t);
constexpr std::size_t block = 2 * lanes;

// By reference: the ABI for returning 512-bit vectors depends on the processor.
void load(Lanes& to, const std::uint32_t* from) { std::memcpy(&to, from, sizeof to); }

}  // namespace

void shingle_hashes(std::string_view text, const ShingleOptions& options, std::vector<std::uint64_t>& hashes) {
  hashes.clear();
  std::string folded_text;
  if (options.folding == ShingleFolding::case_and_white_space) {
    folded_text = folded(text);
    text = folded_text;
  }
  if (text.empty()) return;
  if (options.unit == ShingleUnit::characters) {
    add_characters(text, options.size, hashes);
  } else {
    add_words(text, options.size, hashes);
  }
}

void make_set(std::vector<std::uint64_t>& hashes) {
  HashTable met(hashes.size());
  std::size_t count = 0;
  for (const std::uint64_t hash : hashes) {
    hashes[count] = hash;
    count += met.insert(hash) ? 1 : 0;
  }
  hashes.resize(count);
}

double jaccard(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  if (a.empty() && b.empty()) return 1;
  HashTable set(b.size());
  for (const std::uint64_t hash : b) set.insert(hash);
  std::size_t common = 0;
  for (const std::uint64_t hash : a) common += set.contains(hash) ? 1 : 0;
  return static_cast<double>(common) / static_cast<double>(a.size() + b.size() - common);
}

MinHash::MinHash(const MinHashOptions& options) : options_(options) {
  TRIREME_CHECK(options.bands > 0 && options.rows > 0, ConfigError, "{} bands of {} rows", options.bands, options.rows);
  const auto functions = static_cast<std::size_t>(options.bands) * static_cast<std::size_t>(options.rows);
  const std::size_t padded = (functions + block - 1) / block * block;
  for (std::size_t i = 0; i < padded; ++i) {
    const std::uint64_t random = splitmix64(options.seed, i);
    flips_.push_back(static_cast<std::uint32_t>(random));
    factors_.push_back(static_cast<std::uint32_t>(random >> 32) | 1u);
  }
}

int MinHash::sketch_bytes() const { return std::min(128, options_.bands * options_.rows); }

void MinHash::band_keys(std::span<const std::uint64_t> shingles, std::span<std::uint64_t> keys,
                        std::span<char> sketch) const {
  const std::vector<std::uint32_t> values = low_bits(shingles);
  std::vector<std::uint32_t> signature(flips_.size());
  for (std::size_t first = 0; first < signature.size(); first += block) {
    Lanes flip_0, flip_1, factor_0, factor_1;
    load(flip_0, &flips_[first]);
    load(flip_1, &flips_[first + lanes]);
    load(factor_0, &factors_[first]);
    load(factor_1, &factors_[first + lanes]);
    Lanes min_0 = Lanes{} - 1;
    Lanes min_1 = Lanes{} - 1;
    for (const std::uint32_t x : values) {
      const Lanes value_0 = (flip_0 ^ x) * factor_0;
      const Lanes value_1 = (flip_1 ^ x) * factor_1;
      min_0 = value_0 < min_0 ? value_0 : min_0;
      min_1 = value_1 < min_1 ? value_1 : min_1;
    }
    std::memcpy(&signature[first], &min_0, sizeof min_0);
    std::memcpy(&signature[first + lanes], &min_1, sizeof min_1);
  }
  const auto rows = static_cast<std::size_t>(options_.rows);
  for (std::size_t band = 0; band < keys.size(); ++band) {
    keys[band] = hash64(&signature[band * rows], rows * sizeof(std::uint32_t), options_.seed + band);
  }
  for (std::size_t i = 0; i < sketch.size(); ++i) sketch[i] = static_cast<char>(signature[i]);
}

int agreeing_bytes(std::string_view a, std::string_view b) {
  constexpr std::uint64_t low_bits = 0x7F7F7F7F7F7F7F7Fu;
  constexpr std::size_t step = sizeof(std::uint64_t);
  int differing = 0;
  std::size_t i = 0;
  for (std::uint64_t of_a = 0, of_b = 0; i + step <= a.size(); i += step) {
    std::memcpy(&of_a, a.data() + i, step);
    std::memcpy(&of_b, b.data() + i, step);
    const std::uint64_t difference = of_a ^ of_b;
    // The highest bit of a byte is set if any of its bits is.
    differing += std::popcount((((difference & low_bits) + low_bits) | difference) & ~low_bits);
  }
  for (; i < a.size(); ++i) differing += a[i] != b[i] ? 1 : 0;
  return static_cast<int>(a.size()) - differing;
}

bool may_be_similar(int agreeing, std::size_t sketch_bytes, double jaccard) {
  const auto n = static_cast<double>(sketch_bytes);
  return agreeing >= n * jaccard - 6 * std::sqrt(n * jaccard * (1 - jaccard));
}

}  // namespace trireme::data
