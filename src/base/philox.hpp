#pragma once

#include <array>
#include <cstdint>

namespace trireme {

struct WideProduct {
  constexpr std::uint64_t operator()(std::uint32_t a, std::uint32_t b) const { return std::uint64_t{a} * b; }
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 128 random bits
/// as a pure function of a 64-bit key and a 128-bit counter. Source of all random numbers of a run, which thus depend
/// neither on the grid, the order of computation nor a stored state. `product` multiplies two numbers.
template <class Product = WideProduct>
constexpr std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::array<std::uint32_t, 4> counter,
                                                  Product product = {}) {
  std::uint32_t key_low = static_cast<std::uint32_t>(key);
  std::uint32_t key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = product(0xD2511F53u, counter[0]);
    const std::uint64_t product1 = product(0xCD9E8D57u, counter[2]);
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key_low, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(product0)};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace trireme
