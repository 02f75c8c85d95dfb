#include "src/data/dataset/token_store.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::data {

void read_checked_tokens(const TokenStore& store, std::int64_t vocabulary_size, std::int64_t first,
                         std::span<std::int32_t> ids) {
  read_tokens(store, first, std::ssize(ids), [&](const auto& tokens, std::int64_t begin) {
    std::ranges::transform(tokens, ids.begin() + begin, [](auto token) { return static_cast<std::int32_t>(token); });
  });
  // Checks the copy: a file may change after inspection.
  const auto bad = std::ranges::find_if(
      ids, [&](std::int32_t id) { return std::int64_t{static_cast<std::uint32_t>(id)} >= vocabulary_size; });
  TRIREME_CHECK(bad == ids.end(), DataError,
                "{}: token {} is {}, not in the vocabulary of {} ids; the corpus is damaged", store.name(),
                first + (bad - ids.begin()), static_cast<std::uint32_t>(*bad), vocabulary_size);
}

}  // namespace trireme::data
