#include "src/data/tasks/pair_packing.hpp"

#include <algorithm>

namespace trireme::data {

PackedPair pack_pair(std::span<const std::int32_t> a, std::optional<std::span<const std::int32_t>> b,
                     std::int64_t max_length, const PairTokens& tokens) {
  PackedPair packed;
  const auto room = static_cast<std::size_t>(std::max<std::int64_t>(max_length, 1));
  bool is_cut = false;
  const auto append = [&](std::span<const std::int32_t> list, std::int32_t type) {
    const std::size_t size = std::min(list.size(), room - packed.tokens.size());
    packed.tokens.insert(packed.tokens.end(), list.begin(), list.begin() + static_cast<std::ptrdiff_t>(size));
    packed.token_types.resize(packed.tokens.size(), type);
  };
  append({&tokens.cls, 1}, 0);
  append(a, 0);
  append({&tokens.sep, 1}, 0);
  if (b) append(*b, 1);
  is_cut = packed.tokens.size() >= room;
  if (is_cut) {
    packed.tokens.resize(room - 1);
    packed.token_types.resize(room - 1);
  }
  if (b || is_cut) append({&tokens.sep, 1}, b ? 1 : 0);
  return packed;
}

}  // namespace trireme::data
