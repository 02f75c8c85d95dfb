#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "io/corpus/index_files.hpp"
#include "io/h5/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/hash.hpp"
#include "src/base/timer.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/data/dataset/gpt_samples.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/sample_text.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t token_count = 100'000'000'000;
constexpr std::int64_t document_count = 100'000'000;
constexpr std::int64_t document_tokens = token_count / document_count;
// Tokens that are not 0, all of them beyond what 32 bits count: number k is at (k + 5) · 10^9 + 7.
constexpr std::int64_t mark_count = 90;
constexpr std::int64_t mark(std::int64_t k) { return (k + 5) * 1'000'000'000 + 7; }

/// A corpus of 200 GB of which only the tables take space on the disk.
void write_sparse(const std::string& path) {
  const auto tokenizer = data::make_null_tokenizer(1000, 999);
  h5::File file = h5::File::create(path);
  h5::Dataset tokens = file.create_dataset("/tokens", DType::uint16, {token_count});
  for (std::int64_t k = 0; k < mark_count; ++k) {
    const auto value = static_cast<std::uint16_t>(k + 1);
    tokens.write_rows(mark(k), ConstTensorView(&value, {1}));
  }
  Digest table;
  h5::Dataset offsets = file.create_dataset("/document_offsets", DType::int64, {document_count + 1});
  std::vector<std::int64_t> chunk;
  for (std::int64_t begin = 0; begin <= document_count; begin += static_cast<std::int64_t>(chunk.size())) {
    chunk.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 20, document_count + 1 - begin)));
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      chunk[i] = (begin + static_cast<std::int64_t>(i)) * document_tokens;
    }
    table.update(chunk.data(), chunk.size() * sizeof(chunk[0]));
    offsets.write_rows(begin, ConstTensorView(chunk.data(), {static_cast<std::int64_t>(chunk.size())}));
  }
  const std::vector<std::uint16_t> zeros(corpus_block_tokens);
  const std::string zero_digest = digest(zeros.data(), zeros.size() * 2);
  std::string digests;
  for (std::int64_t block = 0; block * corpus_block_tokens < token_count; ++block) digests += zero_digest;
  table.update(digests.data(), digests.size());
  write_bytes(file, "/block_digests", digests, {std::ssize(digests)});
  const std::string payload = tokenizer->payload();
  write_bytes(file, "/tokenizer_payload", payload, {std::ssize(payload)});
  write_corpus_header(file, corpus_format_name,
                      {.tokenizer = tokenizer->name(),
                       .tokenizer_digest = tokenizer->digest(),
                       .tokenizer_payload = payload,
                       .content_digest = table.hex(),
                       .vocabulary_size = tokenizer->vocabulary_size(),
                       .end_of_document = tokenizer->end_of_document(),
                       .max_id = mark_count});
  file.close();
}

TEST(LargeCorpus, AHundredBillionTokensOpenInASecondAndReadCorrectly) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "large.h5";
  if (free_bytes(directory.path()) < (std::int64_t{4} << 30)) GTEST_SKIP() << "less than 4 GiB free for the tables";
  write_sparse(path);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  if (status.st_blocks * 512 > (std::int64_t{3} << 30)) GTEST_SKIP() << "this file system keeps no sparse files";

  Timer timer;
  const auto store = std::make_shared<CorpusStore>(path);
  const double open_s = timer.elapsed_s();
  EXPECT_EQ(store->token_count(), token_count);
  EXPECT_EQ(store->documents(), document_count);
  EXPECT_LT(open_s, 1.0);
  EXPECT_NO_THROW(store->verify_block(4));
  EXPECT_THROW(store->verify_block(mark(0) / corpus_block_tokens), DataError);  // whose digest is that of zeros

  const data::CheckedTokens tokens(store, 1000);
  for (std::int64_t k = 0; k < mark_count; ++k) {
    std::array<std::int32_t, 3> ids{};
    tokens.read(mark(k) - 1, ids);
    EXPECT_EQ(ids, (std::array<std::int32_t, 3>{0, static_cast<std::int32_t>(k + 1), 0}));
  }

  // One epoch of samples of 1024 tokens.
  IndexFiles cache(directory / "cache");
  data::GptDataOptions options;
  options.sequence_length = 1024;
  options.split_fractions = {1, 0, 0};
  options.budgets = {{1000, 0, 0}};
  options.cache = &cache;
  timer = Timer();
  data::SampleSplits data = data::make_gpt_data({{store}}, options);
  const double index_s = timer.elapsed_s();
  EXPECT_EQ(data.train->size(), (token_count - 1) / 1024);
  timer = Timer();
  data = data::make_gpt_data({{store}}, options);
  std::printf("open: %.3f s; order of samples computed and kept: %.1f s; found again: %.2f s\n", open_s, index_s,
              timer.elapsed_s());

  const data::GptIndex index({store->document_offsets(), 0, document_count, 0, token_count}, 1024, 1000, 1234,
                             store.get(), &cache);
  for (const std::int64_t sample : {std::int64_t{0}, std::int64_t{4'194'304}, index.size() / 2, index.size()}) {
    const auto position = index.position(sample);
    EXPECT_EQ(position.entry * document_tokens + position.offset, sample * 1024);
  }
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < index.size(); ++i) sum += index.shuffled(i);
  EXPECT_EQ(sum, index.size() * (index.size() - 1) / 2);
  for (const std::int64_t sample : {std::int64_t{0}, index.size() / 2, index.size() - 1}) {
    EXPECT_NO_THROW(test::text_of(*data.train, sample));
  }
}

}  // namespace
}  // namespace trireme::io
