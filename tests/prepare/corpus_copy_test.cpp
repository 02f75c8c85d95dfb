#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/foreign_corpus.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/prepare/corpus_copy.hpp"
#include "tests/io/corpus/corpus_files.hpp"
#include "tests/prepare/disk.hpp"
#include "tests/support/sample_text.hpp"

namespace trireme::prepare {
namespace {

using io::CorpusFiles;
using io::ids_of;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST_F(CorpusFiles, MergeOneAfterAnother) {
  const std::string a = corpus("a.h5", {{1, 2}, {}}, *narrow_);
  const std::string b = corpus("b.h5", {{3}}, *narrow_);
  const CorpusSize size = merge_corpora(disk, {b, a, b}, directory_ / "c.h5");
  EXPECT_EQ(size.documents, 4);
  EXPECT_EQ(size.tokens, 4);
  const io::CorpusStore store(directory_ / "c.h5");
  EXPECT_NO_THROW(store.verify());
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 1, 3, 3, 4));
  EXPECT_THAT(ids_of(store), ElementsAre(3, 1, 2, 3));
  EXPECT_THAT([&] { merge_corpora(disk, {a, b}, a); }, ThrowsMessage<ConfigError>(HasSubstr("both input and output")));
  EXPECT_THAT(
      [&] {
        merge_corpora(disk, {a, corpus("w.h5", {{1}}, *wide_)}, directory_ / "d.h5");
      },
      ThrowsMessage<DataError>(AllOf(HasSubstr(narrow_->ids_digest()), HasSubstr(wide_->ids_digest()))));
}

TEST_F(CorpusFiles, SplitLikeATrainingRun) {
  Documents documents;
  for (std::int32_t d = 0; d < 120; ++d) documents.push_back(std::vector<std::int32_t>(d % 7, d));
  const io::CorpusStore whole(corpus("a.h5", documents, *narrow_));
  for (const auto by : {data::SplitBy::documents, data::SplitBy::tokens}) {
    const std::array<std::string, 3> outputs{directory_ / "t.h5", directory_ / "v.h5", directory_ / "e.h5"};
    const auto fractions = data::parse_split("8,1,1");
    const auto sizes = split_corpus(disk, whole.name(), fractions, by, outputs);
    std::vector<std::int32_t> ids;
    for (const auto split : {data::Split::train, data::Split::valid, data::Split::test}) {
      const auto i = static_cast<std::size_t>(split);
      const data::DocumentRange range = data::documents_of(whole, split, fractions, by);
      const io::CorpusStore written(outputs[i]);
      EXPECT_NO_THROW(written.verify());
      ASSERT_EQ(written.documents(), range.documents);
      EXPECT_EQ(sizes[i].tokens, range.tokens());
      for (std::int64_t d = 0; d <= range.documents; ++d) {
        const std::int64_t offset = d == 0 ? 0 : range.end(d - 1) - range.begin_token;
        EXPECT_EQ(written.document_offsets()[static_cast<std::size_t>(d)], offset);
      }
      const auto written_ids = ids_of(written);
      ids.insert(ids.end(), written_ids.begin(), written_ids.end());
    }
    EXPECT_EQ(ids, ids_of(whole));
  }
  const auto sizes = split_corpus(disk, whole.name(), data::parse_split("1"), data::SplitBy::documents,
                                  {directory_ / "all.h5", directory_ / "none.h5", directory_ / "no.h5"});
  EXPECT_EQ(sizes[0].tokens, whole.token_count());
  EXPECT_EQ(sizes[1].documents, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "none.h5"));
  std::filesystem::create_directory(directory_ / "folder.h5");
  EXPECT_THROW(split_corpus(disk, whole.name(), data::parse_split("8,1,1"), data::SplitBy::documents,
                            {directory_ / "first.h5", directory_ / "second.h5", directory_ / "folder.h5"}),
               Error);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "first.h5")) << "a refused split writes nothing";
}

TEST_F(CorpusFiles, SplitInsideSentences) {
  {
    io::CorpusWriter writer(directory_ / "s.h5", *narrow_);
    for (const std::int32_t size : {3, 2, 5}) {  // sentences of two documents
      writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(size), size));
      writer.end_sentence();
      if (size != 3) writer.end_document();
    }
    writer.finish();
  }
  split_corpus(disk, directory_ / "s.h5", data::parse_split("4,2,4"), data::SplitBy::tokens,
               {directory_ / "t.h5", directory_ / "v.h5", directory_ / "e.h5"});
  EXPECT_THAT(io::CorpusStore(directory_ / "t.h5").sentence_offsets(), ElementsAre(0, 3, 4));
  EXPECT_THAT(io::CorpusStore(directory_ / "v.h5").sentence_offsets(), ElementsAre(0, 1, 2));
  EXPECT_THAT(io::CorpusStore(directory_ / "v.h5").document_offsets(), ElementsAre(0, 1, 2));
  EXPECT_THAT(io::CorpusStore(directory_ / "e.h5").sentence_offsets(), ElementsAre(0, 4));
  EXPECT_THAT(
      [&] {
        merge_corpora(disk, {directory_ / "s.h5", corpus("a.h5", {{1}}, *narrow_)}, directory_ / "m.h5");
      },
      ThrowsMessage<DataError>(HasSubstr("built with sentences")));
}

TEST_F(CorpusFiles, CopiesAndViewsKeepLearnedRanges) {
  const std::string a = directory_ / "a.h5", no = corpus("no.h5", {{1, 2}}, *narrow_);
  {
    io::CorpusWriter writer(a, *narrow_);
    writer.begin_learned_ranges();
    for (const std::int32_t size : {6, 4, 3}) {  // documents, of the first the third and the sixth token are learned
      if (size == 6) writer.learn({2, 3});
      if (size == 6) writer.learn({5, 6});
      if (size == 4) writer.learn({7, 10});
      writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(size), size));
      writer.end_document();
    }
    writer.finish();
  }
  const auto ranges = [&](const std::string& name) {
    const io::CorpusStore store(directory_ / name);
    EXPECT_NO_THROW(store.verify());
    return std::vector(store.learned_ranges()->begin(), store.learned_ranges()->end());
  };
  using Ranges = std::vector<data::LearnedRange>;
  const Ranges once = {{2, 3}, {5, 6}, {7, 10}};
  EXPECT_EQ(ranges("a.h5"), once);
  EXPECT_NE(
      io::CorpusStore(a).info().content_digest,
      io::CorpusStore(corpus("b.h5", {{6, 6, 6, 6, 6, 6}, {4, 4, 4, 4}, {3, 3, 3}}, *narrow_)).info().content_digest);
  for (const CorpusKind kind : {CorpusKind::copy, CorpusKind::view}) {
    merge_corpora(disk, {a, a}, directory_ / "two.h5", kind);
    EXPECT_EQ(ranges("two.h5"), (Ranges{{2, 3}, {5, 6}, {7, 10}, {15, 16}, {18, 19}, {20, 23}}));
    split_corpus(disk, a, data::parse_split("9,4"), data::SplitBy::tokens,
                 {directory_ / "t.h5", directory_ / "v.h5", directory_ / "e.h5"}, kind);
    EXPECT_EQ(ranges("t.h5"), (Ranges{{2, 3}, {5, 6}, {7, 9}}));
    EXPECT_EQ(ranges("v.h5"), (Ranges{{0, 1}}));
    split_corpus(disk, a, data::parse_split("2,1"), data::SplitBy::documents,
                 {directory_ / "t.h5", directory_ / "v.h5", directory_ / "e.h5"}, kind);
    EXPECT_EQ(ranges("v.h5"), Ranges{}) << "conversations without learned tokens are no text";
    EXPECT_THAT(
        [&] {
          merge_corpora(disk, {no, a}, directory_ / "m.h5", kind);
        },
        ThrowsMessage<DataError>(HasSubstr("one holds conversations")));
  }
  EXPECT_THAT([&] { io::export_megatron(io::CorpusStore(a), directory_ / "mega"); },
              ThrowsMessage<DataError>(HasSubstr("Megatron-LM's format has no place for that")));
}

TEST_F(CorpusFiles, SampleSizesGrowWithTheShare) {
  Documents documents;
  for (std::int32_t d = 0; d < 2000; ++d) documents.push_back({d % 250});
  const std::string whole = corpus("a.h5", documents, *wide_);
  const CorpusSize tenth = sample_corpus(disk, whole, 0.1, 1, directory_ / "b.h5");
  const CorpusSize third = sample_corpus(disk, whole, 0.3, 1, directory_ / "c.h5");
  EXPECT_NEAR(static_cast<double>(tenth.documents), 200, 60);  // four standard deviations
  EXPECT_NEAR(static_cast<double>(third.documents), 600, 82);
  const auto more = ids_of(io::CorpusStore(directory_ / "c.h5"));
  auto at = more.begin();
  for (const std::int32_t id : ids_of(io::CorpusStore(directory_ / "b.h5"))) at = std::find(at, more.end(), id);
  EXPECT_NE(at, more.end());
  EXPECT_EQ(sample_corpus(disk, whole, 1, 7, directory_ / "d.h5").documents, 2000);
  EXPECT_THROW(sample_corpus(disk, whole, 0, 7, directory_ / "d.h5"), DataError);
}

/// Expects the same documents, sentences and tokenizer in both corpora.
void expect_same(const io::CorpusStore& a, const io::CorpusStore& b) {
  EXPECT_EQ(ids_of(a), ids_of(b));
  EXPECT_TRUE(std::ranges::equal(a.document_offsets(), b.document_offsets()));
  EXPECT_TRUE(std::ranges::equal(a.sentence_offsets(), b.sentence_offsets()));
  EXPECT_EQ(a.info().tokenizer_payload, b.info().tokenizer_payload);
  EXPECT_EQ(a.info().end_of_document, b.info().end_of_document);
}

TEST_F(CorpusFiles, ViewsEqualCopies) {
  Documents documents;
  for (std::int32_t d = 0; d < 300; ++d) documents.emplace_back(static_cast<std::size_t>(d % 7), d);
  const std::string a = corpus("a.h5", documents, *wide_);
  std::filesystem::create_directory(directory_ / "below");
  const std::string b = corpus("below/b.h5", {{1, 2, 3}, {}, {4}}, *wide_);
  const auto both = [&](const std::string& name, const auto& make) {
    make(directory_ / ("copy_" + name), CorpusKind::copy);
    make(directory_ / ("view_" + name), CorpusKind::view);
    const io::CorpusStore view(directory_ / ("view_" + name));
    EXPECT_TRUE(view.is_view());
    EXPECT_NO_THROW(view.verify());
    expect_same(view, io::CorpusStore(directory_ / ("copy_" + name)));
    // Sources are beside the view, not beside a link to it.
    std::filesystem::create_directories(directory_ / "links");
    std::filesystem::create_symlink(directory_ / ("view_" + name), directory_ / ("links/" + name));
    EXPECT_NO_THROW(io::CorpusStore(directory_ / ("links/" + name)));
  };
  both("sample", [&](const std::string& path, CorpusKind kind) { sample_corpus(disk, a, 0.3, 5, path, kind); });
  both("merged", [&](const std::string& path, CorpusKind kind) { merge_corpora(disk, {b, a, b}, path, kind); });
  both("train.h5", [&](const std::string& path, CorpusKind kind) {
    split_corpus(disk, a, {0.5, 0.3, 0.2}, data::SplitBy::tokens, {path, path + "v", path + "t"}, kind);
  });
  expect_same(io::CorpusStore(directory_ / "view_train.h5v"), io::CorpusStore(directory_ / "copy_train.h5v"));
  // A view of a view refers to the sources.
  both("again", [&](const std::string& path, CorpusKind kind) {
    sample_corpus(disk, directory_ / (kind == CorpusKind::view ? "view_merged" : "copy_merged"), 0.5, 9, path, kind);
  });
  EXPECT_EQ(io::CorpusStore(directory_ / "view_again").sources().size(), 2u);
  std::filesystem::remove(directory_ / "view_merged");
  EXPECT_NO_THROW(io::CorpusStore(directory_ / "view_again"));
  sample_corpus(disk, directory_ / "view_again", 1, 1, directory_ / "copy_of_view");  // a copy again
  EXPECT_FALSE(io::CorpusStore(directory_ / "copy_of_view").is_view());
  expect_same(io::CorpusStore(directory_ / "copy_of_view"), io::CorpusStore(directory_ / "copy_again"));
  io::export_megatron(io::CorpusStore(directory_ / "view_again"), directory_ / "v");
  io::export_megatron(io::CorpusStore(directory_ / "copy_again"), directory_ / "c");
  EXPECT_EQ(content("v.bin"), content("c.bin"));
  EXPECT_EQ(content("v.idx"), content("c.idx"));
}

TEST_F(CorpusFiles, ViewsGiveTrainingTheSamplesThatCopiesDo) {
  Documents documents;
  for (std::int32_t d = 0; d < 200; ++d) documents.emplace_back(static_cast<std::size_t>(5 + d % 9), d);
  const std::string a = corpus("a.h5", documents, *narrow_);
  std::vector<std::vector<std::int32_t>> samples;
  for (const CorpusKind kind : {CorpusKind::copy, CorpusKind::view}) {
    sample_corpus(disk, a, 0.5, 5, directory_ / "part.h5", kind);
    data::GptDataOptions options;
    options.sequence_length = 16;
    options.budgets = {{50, 2, 0}};
    const auto gpt = data::make_gpt_data({{std::make_shared<io::CorpusStore>(directory_ / "part.h5")}}, options);
    std::vector<std::int32_t>& all = samples.emplace_back();
    for (std::int64_t i = 0; i < 50; ++i) {
      const std::vector<std::int32_t> ids = test::text_of(*gpt.train, i);
      all.insert(all.end(), ids.begin(), ids.end());
    }
  }
  EXPECT_EQ(samples[0], samples[1]);
}

TEST_F(CorpusFiles, ViewsKeepSentences) {
  io::CorpusWriter writer(directory_ / "a.h5", *narrow_);
  for (std::int32_t d = 0; d < 50; ++d) {
    for (std::int32_t s = 0; s <= d % 3; ++s) {
      writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(1 + s), d));
      writer.end_sentence();
    }
    writer.end_document();
  }
  writer.finish();
  sample_corpus(disk, directory_ / "a.h5", 0.5, 2, directory_ / "copy.h5");
  sample_corpus(disk, directory_ / "a.h5", 0.5, 2, directory_ / "view.h5", CorpusKind::view);
  expect_same(io::CorpusStore(directory_ / "view.h5"), io::CorpusStore(directory_ / "copy.h5"));
  EXPECT_FALSE(io::CorpusStore(directory_ / "view.h5").sentence_offsets().empty());
}

TEST_F(CorpusFiles, ViewsDetectAMissingOrChangedSource) {
  std::filesystem::create_directory(directory_ / "x");
  const std::string a = corpus("x/a.h5", {{1, 2}, {3}}, *narrow_);
  const std::string view = directory_ / "x/view.h5";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_ / "x");
  merge_corpora(disk, {"a.h5", a}, "view.h5", CorpusKind::view);
  std::filesystem::current_path(before);
  EXPECT_THAT([&] { merge_corpora(disk, {view}, a); },
              ThrowsMessage<ConfigError>(HasSubstr("is both input and output")));
  std::filesystem::rename(directory_ / "x", directory_ / "y");  // both moved
  const std::string moved = directory_ / "y/view.h5";
  EXPECT_THAT(ids_of(io::CorpusStore(moved)), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT([&] { merge_corpora(disk, {moved}, directory_ / "y/a.h5", CorpusKind::view); },
              ThrowsMessage<ConfigError>(HasSubstr("is both")));
  std::filesystem::rename(directory_ / "y/a.h5", directory_ / "a.h5");
  EXPECT_THAT(
      [&] { io::CorpusStore{moved}; },
      ThrowsMessage<IoError>(AllOf(HasSubstr("y/view.h5 is a view of"), HasSubstr("a.h5"), HasSubstr("No such file"),
                                   HasSubstr("put that corpus back, or make the view again"))));
  corpus("y/a.h5", {{1, 2}, {4}}, *narrow_);
  EXPECT_THAT([&] { io::CorpusStore{moved}; },
              ThrowsMessage<DataError>(HasSubstr("which has changed since: its digest was")));
  std::filesystem::copy(moved, directory_ / "y/a.h5", std::filesystem::copy_options::overwrite_existing);  // itself
  EXPECT_THAT([&] { io::CorpusStore{moved}; }, ThrowsMessage<DataError>(HasSubstr("is a view itself")));
}

TEST_F(CorpusFiles, ViewsThatAreDamagedAreRefused) {
  const std::string a = corpus("a.h5", {{1, 2}, {3}, {4, 5, 6}}, *narrow_);
  sample_corpus(disk, a, 0.9, 3, directory_ / "view.h5", CorpusKind::view);
  const std::string good = content("view.h5");
  const auto ids = ids_of(io::CorpusStore(directory_ / "view.h5"));
  for (std::size_t at = 0; at < good.size(); at += 13) {
    std::string bad = good;
    bad[at] ^= 4;
    std::ofstream(directory_ / "bad.h5", std::ios::binary) << bad;
    try {
      EXPECT_EQ(ids_of(io::CorpusStore(directory_ / "bad.h5")), ids) << at;
    } catch (const DataError&) {
    } catch (const IoError&) {  // another name of the source
    }
    std::filesystem::remove(directory_ / "bad.h5");
  }
}

TEST_F(CorpusFiles, CopiesFindDamageAndLeaveNothing) {
  std::vector<std::int32_t> ids(io::corpus_block_tokens + 7, 3);
  const std::string path = corpus("a.h5", {ids}, *narrow_);
  std::string bytes = content("a.h5");
  const std::string tail("\3\0\3\0\3\0\3\0", 8);
  bytes[bytes.rfind(tail)] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT([&] { merge_corpora(disk, {path}, directory_ / "b.h5"); },
              ThrowsMessage<DataError>(HasSubstr("tokens 1048576 to 1048582")));
  EXPECT_THAT([&] { io::export_megatron(io::CorpusStore(path), directory_ / "b"); },
              ThrowsMessage<DataError>(HasSubstr("tokens 1048576 to 1048582")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(CorpusFiles, AreNotWrittenByTwoAtOnce) {
  const std::string a = corpus("a.h5", {{1, 2}}, *narrow_);
  const io::FolderLock other(directory_ / "b.h5.lock", "b.h5");
  EXPECT_THAT([&] { merge_corpora(disk, {a}, directory_ / "b.h5"); },
              ThrowsMessage<EnvironmentError>(HasSubstr("in use by another job")));
}

}  // namespace
}  // namespace trireme::prepare
