#include "src/base/hash.hpp"

#include <fmt/format.h>

#include <new>
#include <type_traits>

#define XXH_INLINE_ALL  // short inputs take less time than a call
#if defined(__AVX512F__)
#define XXH_VECTOR XXH_AVX2  // GCC 12 warns of its own functions for AVX-512
#endif
#include <xxhash.h>

namespace trireme {
namespace {
std::string hex_of(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }
XXH3_state_t* state_of(void* state) { return static_cast<XXH3_state_t*>(state); }
}  // namespace

std::uint64_t hash64(const void* data, std::size_t size_bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, size_bytes, seed);
}

void hash64_windows(const char* text, std::size_t size_bytes, std::span<std::uint64_t> hashes) {
  const auto hash_all = [&](auto size) {
    for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = XXH3_64bits(text + i, size);
  };
  constexpr std::size_t usual_size = 5;  // known to the compiler, a few instructions
  size_bytes == usual_size ? hash_all(std::integral_constant<std::size_t, usual_size>()) : hash_all(size_bytes);
}

Hash128 hash128(const void* data, std::size_t size_bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, size_bytes);
  return {hash.high64, hash.low64};
}

std::string digest(const void* data, std::size_t size_bytes) { return hex_of(XXH3_128bits(data, size_bytes)); }

Digest::Digest() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_of(state_));
}
Digest::~Digest() { XXH3_freeState(state_of(state_)); }
void Digest::update(const void* data, std::size_t size_bytes) {
  XXH3_128bits_update(state_of(state_), data, size_bytes);
}
std::string Digest::hex() const { return hex_of(XXH3_128bits_digest(state_of(state_))); }

}  // namespace trireme
