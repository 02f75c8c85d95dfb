#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// FNV-1a, 64 bits, of the bytes of `text`.
constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  return hash;
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that spreads every input bit.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Element `index` of the SplitMix64 sequence that starts at `seed`.
constexpr std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t index) {
  return mix64(seed + (index + 1) * 0x9E3779B97F4A7C15u);
}

/// XXH3 of 64 bits.
std::uint64_t hash64(const void* data, std::size_t size_bytes, std::uint64_t seed);

/// Sets hashes[i] to the `hash64`, with seed 0, of the `size_bytes` bytes from text + i on.
void hash64_windows(const char* text, std::size_t size_bytes, std::span<std::uint64_t> hashes);

/// XXH3 of 128 bits: detects accidental changes, not deliberate ones.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};
Hash128 hash128(const void* data, std::size_t size_bytes);

/// XXH3 of 128 bits as 32 hexadecimal digits: detects accidental changes, not deliberate ones.
std::string digest(const void* data, std::size_t size_bytes);

/// Incremental computation of the 32-digit hexadecimal digest.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest& operator=(Digest&&) = delete;
  void update(const void* data, std::size_t size_bytes);
  std::string hex() const;

 private:
  void* state_;
};

}  // namespace trireme
