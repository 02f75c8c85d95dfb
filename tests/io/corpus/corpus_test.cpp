#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "io/h5/file.hpp"
#include "src/base/philox.hpp"
#include "tests/io/corpus/corpus_files.hpp"
#include "tests/support/file_size_limit.hpp"

namespace trireme::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::int32_t> random_ids(std::int64_t count, std::int32_t vocabulary_size) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(philox4x32(7, {static_cast<std::uint32_t>(i)})[0] %
                                       static_cast<std::uint32_t>(vocabulary_size));
  }
  return ids;
}

class Corpus : public CorpusFiles {
 protected:
  void write(const data::Tokenizer& tokenizer, const Documents& documents) { corpus(name_, documents, tokenizer); }
  void expect_damaged(const std::string& reason) const {
    EXPECT_THAT([&] { CorpusStore(path_).verify(); }, ThrowsMessage<DataError>(HasSubstr(reason)));
  }
  std::string bytes() const { return content(name_); }
  void replace(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  const std::string name_ = "corpus größe.h5", path_ = directory_ / name_;
};

TEST_F(Corpus, ReadsBackWhatWasWritten) {
  const std::vector<std::vector<std::int32_t>> documents{{1, 2, 3}, {}, {256}, {7, 8}};
  write(*narrow_, documents);
  const CorpusStore store(path_);
  EXPECT_NO_THROW(store.verify());
  EXPECT_EQ(store.name(), path_);
  EXPECT_EQ(store.documents(), 4);
  EXPECT_EQ(store.token_count(), 6);
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 3, 3, 4, 6));
  EXPECT_THAT(ids_of(store), ElementsAre(1, 2, 3, 256, 7, 8));
  const data::CorpusInfo& info = store.info();
  EXPECT_EQ(info.tokenizer, "bytes");
  EXPECT_EQ(info.tokenizer_digest, narrow_->digest());
  EXPECT_EQ(info.tokenizer_payload, narrow_->payload());
  EXPECT_EQ(info.vocabulary_size, 257);
  EXPECT_EQ(info.end_of_document, 256);
  EXPECT_EQ(info.max_id, 256);
}

TEST_F(Corpus, HoldsSixteenBitsUpTo65536IdsAndThirtyTwoBeyond) {
  for (const std::int32_t size : {65536, 65537}) {
    const auto ids = random_ids(5000, size);
    write(*data::make_null_tokenizer(size, 0), {ids, {size - 1}});
    const CorpusStore store(path_);
    EXPECT_EQ(store.tokens(0, store.token_count()).index(), size == 65536 ? 0u : 1u);
    std::vector<std::int32_t> expected = ids;
    expected.push_back(size - 1);
    EXPECT_EQ(ids_of(store), expected);
    EXPECT_EQ(store.info().max_id, size - 1);
  }
}

TEST_F(Corpus, SpansBlocksAndManyDocuments) {
  const auto ids = random_ids(2 * corpus_block_tokens + 12345, 257);
  CorpusWriter writer(path_, *narrow_);
  std::vector<std::int64_t> offsets{0};
  for (std::size_t begin = 0; begin < ids.size();) {  // documents of 0, 1, 2 ... 22 tokens
    const std::size_t size = std::min<std::size_t>(offsets.size() % 23, ids.size() - begin);
    writer.append(std::span(ids).subspan(begin, size));
    writer.end_document();
    begin += size;
    offsets.push_back(static_cast<std::int64_t>(begin));
  }
  writer.finish();
  const CorpusStore store(path_);
  EXPECT_NO_THROW(store.verify());
  EXPECT_EQ(ids_of(store), ids);
  EXPECT_TRUE(std::ranges::equal(store.document_offsets(), offsets));
}

TEST_F(Corpus, KeepsSentencesIfAny) {
  write(*narrow_, {{1, 2, 3, 4}, {5}});
  const std::string without = CorpusStore(path_).info().content_digest;
  EXPECT_TRUE(CorpusStore(path_).sentence_offsets().empty());

  CorpusWriter writer(path_, *narrow_);
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  writer.end_sentence();
  writer.end_sentence();  // an empty one is ignored
  writer.append(std::vector<std::int32_t>{4});
  writer.end_sentence();
  writer.end_document();
  writer.append(std::vector<std::int32_t>{5});
  EXPECT_THAT([&] { writer.end_document(); }, ThrowsMessage<DataError>(HasSubstr("document 2 does not end with a")));
  writer.end_sentence();
  writer.end_document();
  EXPECT_EQ(writer.sentences(), 3);
  writer.finish();
  const CorpusStore store(path_);
  EXPECT_NO_THROW(store.verify());
  EXPECT_THAT(store.sentence_offsets(), ElementsAre(0, 3, 4, 5));
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 4, 5));
  EXPECT_NE(store.info().content_digest, without);
}

TEST_F(Corpus, RefusesSentencesAfterDocumentsWithout) {
  CorpusWriter writer(path_, *narrow_);
  writer.append(std::vector<std::int32_t>{1, 2, 3, 4});
  writer.end_document();
  writer.append(std::vector<std::int32_t>{5, 6});
  EXPECT_THAT([&] { writer.end_sentence(); }, ThrowsMessage<DataError>(HasSubstr("document 2 has sentences, but the")));
}

TEST_F(Corpus, RefusesIdsOutsideTheVocabulary) {
  CorpusWriter writer(path_, *narrow_);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{257}), DataError);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{-1}), DataError);
}

TEST_F(Corpus, AbandonedOrFailedLeavesTheOldFileAndNothingElse) {
  write(*narrow_, {{1}});
  const std::string before = bytes();
  {
    CorpusWriter writer(path_, *narrow_);
    writer.append(std::vector<std::int32_t>{2, 3});
  }
  {
    const test::FileSizeLimit limit(1 << 20);
    for (const std::int64_t tokens : {600'000, (1 << 19) - 50}) {  // too many for the spool, or for the HDF5 file
      EXPECT_THAT([&] { write(*narrow_, {random_ids(tokens, 257)}); },
                  ThrowsMessage<EnvironmentError>(HasSubstr("File too large: ulimit -f")));
    }
  }
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(Corpus, FlippedBitsAreFoundOrHarmless) {
  write(*narrow_, {random_ids(3000, 256), random_ids(2000, 257)});
  const std::string good = bytes();
  const CorpusStore store(path_);
  const auto ids = ids_of(store);
  const std::vector<std::int64_t> offsets(store.document_offsets().begin(), store.document_offsets().end());
  const data::CorpusInfo info = store.info();
  int found = 0;
  for (std::uint32_t trial = 0; trial < 1500; ++trial) {
    const auto random = philox4x32(11, {trial});
    std::string bad = good;
    bad[random[0] % bad.size()] ^= static_cast<char>(1 << random[1] % 8);
    std::filesystem::remove(path_);
    replace(bad);
    try {
      const CorpusStore damaged(path_);
      damaged.verify();
      EXPECT_EQ(ids_of(damaged), ids);
      EXPECT_TRUE(std::ranges::equal(damaged.document_offsets(), offsets));
      EXPECT_EQ(damaged.info().content_digest, info.content_digest);
      EXPECT_EQ(damaged.info().tokenizer_payload, info.tokenizer_payload);
      EXPECT_EQ(damaged.info().vocabulary_size, info.vocabulary_size);
      EXPECT_EQ(damaged.info().max_id, info.max_id);
    } catch (const DataError&) {
      ++found;
    }
  }
  EXPECT_GT(found, 1200);  // the tokens are most of the file
}

TEST_F(Corpus, TruncatedIsRefused) {
  write(*narrow_, {random_ids(5000, 257)});
  const auto size = std::filesystem::file_size(path_);
  for (auto kept = size - 1; kept > 0; kept = kept * 3 / 4) {
    std::filesystem::resize_file(path_, kept);
    expect_damaged("");
  }
}

TEST_F(Corpus, AFileChangedDuringReadingIsNamed) {
  write(*narrow_, {random_ids(5000, 257)});
  const auto expect_changed = [&](const CorpusStore& store, const std::string& change) {
    EXPECT_THAT([&] { store.check_unchanged(); }, ThrowsMessage<DataError>(HasSubstr(path_ + " " + change)));
  };
  const std::string good = bytes();
  {
    const CorpusStore store(path_);
    EXPECT_NO_THROW(store.check_unchanged());
    std::filesystem::last_write_time(path_, std::filesystem::last_write_time(path_) + std::chrono::microseconds(1));
    expect_changed(store, "was written to");
    EXPECT_THAT([&] { store.verify(); }, ThrowsMessage<DataError>(HasSubstr("was written to")));
  }
  {
    const CorpusStore store(path_);
    replace(good + "more");
    expect_changed(store, "became longer or shorter");
  }
  const CorpusStore store(path_);
  std::filesystem::rename(path_, path_ + ".old");
  expect_changed(store, "was removed or renamed");
  replace(good);
  expect_changed(store, "was replaced by another file");
}

TEST_F(Corpus, OverwrittenOffsetsReadNoTokensOutOfBounds) {
  write(*narrow_, {{1, 2, 3}});
  const CorpusStore store(path_);
  for (const auto& [first, count] : {std::pair{-1, 1}, {0, 4}, {3, 1}, {1, -1}}) {
    EXPECT_THAT([&] { store.tokens(first, count); }, ThrowsMessage<DataError>(HasSubstr("but 3 in all")));
  }
  EXPECT_THROW(store.stretch_at(3), DataError);
}

TEST_F(Corpus, TokensOfATruncatedFileEndTheProcessWithTheReason) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  write(*narrow_, {{1, 2, 3}});
  const auto read_truncated = [&] {
    const CorpusStore store(path_);
    std::filesystem::resize_file(path_, 0);
    store.verify();
  };
  EXPECT_EXIT(read_truncated(), ::testing::ExitedWithCode(3), "was truncated, or its disk failed");
}

TEST_F(Corpus, BusErrorOutsideTheMappedFileKillsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  write(*narrow_, {{1}});
  const auto another_cause = [&] {
    { const CorpusStore unmapped(path_); }
    const CorpusStore store(path_);
    raise(SIGBUS);
  };
  EXPECT_EXIT(another_cause(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(Corpus, OtherHdf5FilesAndOtherVersionsAreRefused) {
  {
    h5::File file = h5::File::create(path_);
    file.close();
  }
  expect_damaged("is not a corpus of this program");
  {
    h5::File file = h5::File::create(path_);
    file.root().write_attribute("format", corpus_format_name);
    file.root().write_attribute("format_version", std::int64_t{2});
    file.close();
  }
  expect_damaged("has version 2 of the corpus format");
}

}  // namespace
}  // namespace trireme::io
