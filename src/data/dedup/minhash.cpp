#include "src/data/dedup/minhash.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::data {
namespace {

// Two vectors per step hide the latency of the product; all fit in registers.
using Lanes = std::uint32_t __attribute__((vector_size(64)));
constexpr std::size_t lanes = sizeof(Lanes) / sizeof(std::uint32_t);
constexpr std::size_t block = 2 * lanes;

// By reference: the ABI for returning 512-bit vectors depends on the processor.
void load(Lanes& to, const std::uint32_t* from) { std::memcpy(&to, from, sizeof to); }

}  // namespace

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
  std::vector<std::uint32_t> signature(flips_.size());
  for (std::size_t first = 0; first < signature.size(); first += block) {
    Lanes flip_0, flip_1, factor_0, factor_1;
    load(flip_0, &flips_[first]);
    load(flip_1, &flips_[first + lanes]);
    load(factor_0, &factors_[first]);
    load(factor_1, &factors_[first + lanes]);
    Lanes min_0 = Lanes{} - 1;
    Lanes min_1 = Lanes{} - 1;
    for (const std::uint64_t shingle : shingles) {
      const auto x = static_cast<std::uint32_t>(shingle);
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

bool may_be_similar(std::string_view a, std::string_view b, double jaccard) {
  const auto n = static_cast<double>(a.size());
  const auto agreeing =
      static_cast<double>(std::inner_product(a.begin(), a.end(), b.begin(), 0, std::plus<>(), std::equal_to<>()));
  return agreeing >= n * jaccard - 6 * std::sqrt(n * jaccard * (1 - jaccard));
}

}  // namespace trireme::data
