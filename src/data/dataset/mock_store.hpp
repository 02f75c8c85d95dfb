#pragma once

#include <string>
#include <vector>

#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Synthetic corpus without a file, for trials and benchmarks: 10,240 documents of 1 to 4,095 tokens, 21 million tokens
/// in total. Its tokens are a function of seed and position: every block of 512 documents repeats the first one, in
/// which token i is a hash of (seed, i) mod V - 1, and V - 1 ends each document. Holds one block, 4 MiB, and the
/// document offsets in memory.
class MockStore final : public TokenStore {
 public:
  /// Takes tokenizer and vocabulary of `info`, and fills in the rest. Throws ConfigError for fewer than two ids.
  MockStore(CorpusInfo info, std::uint64_t seed);

  const std::string& name() const override { return name_; }
  const CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  TokenSpan tokens(std::int64_t first, std::int64_t count) const override;

 private:
  std::string name_ = "mock data";
  CorpusInfo info_;
  std::vector<std::int64_t> offsets_{0};
  std::vector<std::uint32_t> block_;
};

}  // namespace trireme::data
