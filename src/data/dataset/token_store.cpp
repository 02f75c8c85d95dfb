#include "src/data/dataset/token_store.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t block_documents = 512;
constexpr std::int64_t blocks = 20;
constexpr std::uint64_t longest_document = 4095;

}  // namespace

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

std::int64_t learned_tokens(const TokenStore& store, std::int64_t begin, std::int64_t end) {
  const auto ranges = store.learned_ranges();
  if (!ranges) return end - begin;
  std::int64_t count = 0;
  for_each_learned(*ranges, begin, end, [&](LearnedRange range) { count += range.end - range.begin; });
  return count;
}

MockStore::MockStore(CorpusInfo info, std::uint64_t seed) : info_(std::move(info)) {
  TRIREME_CHECK(info_.vocabulary_size >= 2, ConfigError,
                "<mock_data> needs a vocabulary of at least two ids, one of which ends documents. Try a greater "
                "<vocab_size> than {}",
                info_.vocabulary_size);
  const auto end_of_document = static_cast<std::uint32_t>(info_.vocabulary_size - 1);
  const std::uint64_t lengths = fnv1a("lengths");
  for (std::uint64_t document = 0; document < block_documents; ++document) {
    const std::uint64_t length = 1 + splitmix64(mix64(seed) ^ lengths, document) % longest_document;
    for (std::uint64_t i = 0; i + 1 < length; ++i) {
      block_.push_back(static_cast<std::uint32_t>(splitmix64(mix64(seed), block_.size()) % end_of_document));
    }
    block_.push_back(end_of_document);
    offsets_.push_back(static_cast<std::int64_t>(block_.size()));
  }
  offsets_.reserve(blocks * block_documents + 1);
  for (std::int64_t i = block_documents; i < blocks * block_documents; ++i) {
    offsets_.push_back(offsets_[static_cast<std::size_t>(i + 1 - block_documents)] +
                       static_cast<std::int64_t>(block_.size()));
  }
  info_.end_of_document = end_of_document;
  info_.max_id = end_of_document;
  const std::string content = fmt::format("mock data 1, seed {}, {} ids", seed, info_.vocabulary_size);
  info_.content_digest = digest(content.data(), content.size());
}

TokenSpan MockStore::tokens(std::int64_t first, std::int64_t count) const {
  const auto period = static_cast<std::int64_t>(block_.size());
  const std::int64_t begin = first % period;
  return tokens_in(std::span(block_), begin, std::min(count, period - begin));
}

}  // namespace trireme::data
