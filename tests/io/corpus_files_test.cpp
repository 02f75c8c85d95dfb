#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/corpus_copy.hpp"
#include "io/corpus_format.hpp"
#include "io/corpus_writer.hpp"
#include "io/folder_lock.hpp"
#include "io/llmc_corpus.hpp"
#include "io/megatron_corpus.hpp"
#include "src/data/gpt_data.hpp"
#include "src/data/sample_source.hpp"
#include "src/data/tokenizer.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Numbers as they lie in a little-endian file.
class Bytes {
 public:
  template <class T>
  Bytes& add(std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) {
      const T narrow = static_cast<T>(value);
      text_.append(reinterpret_cast<const char*>(&narrow), sizeof(T));
    }
    return *this;
  }
  Bytes& add_text(std::string_view text) { return text_ += text, *this; }
  Bytes& pad_to(std::size_t size) { return text_.resize(size), *this; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::vector<std::int32_t> ids_of(const CorpusStore& store) {
  std::vector<std::int32_t> ids;
  data::read_tokens(store, 0, store.token_count(),
                    [&](const auto& span, std::int64_t) { ids.insert(ids.end(), span.begin(), span.end()); });
  return ids;
}

class CorpusFiles : public ::testing::Test {
 protected:
  using Documents = std::vector<std::vector<std::int32_t>>;

  std::string corpus(const std::string& name, const Documents& documents, const data::Tokenizer& tokenizer) {
    CorpusWriter writer(directory_ / name, tokenizer);
    for (const auto& document : documents) {
      writer.append(document);
      writer.end_document();
    }
    writer.finish();
    return directory_ / name;
  }
  std::string file(const std::string& name, const Bytes& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes.text();
    return directory_ / name;
  }
  std::string content(const std::string& name) const {
    std::ifstream stream(directory_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  template <class Import>
  CorpusStore imported(const data::Tokenizer& tokenizer, const Import& import) {
    CorpusWriter writer(directory_ / "imported.h5", tokenizer);
    import(writer);
    writer.finish();
    return CorpusStore(directory_ / "imported.h5");
  }
  void expect_bad_megatron(const Bytes& index, const Bytes& tokens, const std::string& words) {
    file("bad.idx", index);
    file("bad.bin", tokens);
    CorpusWriter writer(directory_ / "imported.h5", *narrow_);
    EXPECT_THAT([&] { import_megatron(directory_ / "bad", writer); },
                ThrowsMessage<DataError>(AllOf(HasSubstr("bad."), HasSubstr(words))));
  }
  void expect_bad_llmc(const Bytes& bytes, const std::string& words) {
    const std::string path = file("bad.bin", bytes);
    CorpusWriter writer(directory_ / "imported.h5", *narrow_);
    EXPECT_THAT([&] { import_llmc(path, 256, writer); },
                ThrowsMessage<DataError>(AllOf(HasSubstr("bad.bin"), HasSubstr(words))));
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<data::Tokenizer> narrow_ = data::make_byte_tokenizer();
  std::unique_ptr<data::Tokenizer> wide_ = data::make_null_tokenizer(100'000, 99'999);
};

// The files that Megatron-LM's builder writes of documents (5, 6, 256), () and (7).
const Bytes kIndex = Bytes()
                         .add_text({"MMIDIDX\0\0", 9})
                         .add<std::uint64_t>({1})
                         .add<std::uint8_t>({8})
                         .add<std::uint64_t>({3, 4})
                         .add<std::int32_t>({3, 0, 1})
                         .add<std::int64_t>({0, 6, 6})
                         .add<std::int64_t>({0, 1, 2, 3});
const Bytes kTokens = Bytes().add<std::uint16_t>({5, 6, 256, 7});

TEST_F(CorpusFiles, AreExportedAsMegatronsBuilderWritesThem) {
  export_megatron(CorpusStore(corpus("a.h5", {{5, 6, 256}, {}, {7}}, *narrow_)), directory_ / "a");
  EXPECT_EQ(content("a.idx"), kIndex.text());
  EXPECT_EQ(content("a.bin"), kTokens.text());

  export_megatron(CorpusStore(corpus("b.h5", {{70'000, 6}, {99'999}}, *wide_)), directory_ / "b");
  EXPECT_EQ(content("b.idx"), Bytes()
                                  .add_text({"MMIDIDX\0\0", 9})
                                  .add<std::uint64_t>({1})
                                  .add<std::uint8_t>({4})
                                  .add<std::uint64_t>({2, 3})
                                  .add<std::int32_t>({2, 1})
                                  .add<std::int64_t>({0, 8})
                                  .add<std::int64_t>({0, 1, 2})
                                  .text());
  EXPECT_EQ(content("b.bin"), Bytes().add<std::int32_t>({70'000, 6, 99'999}).text());
}

TEST_F(CorpusFiles, TakeThirtyTwoBitsFromMegatronsLimitOn) {
  for (const std::int64_t size : {65499, 65500}) {
    const auto tokenizer = data::make_null_tokenizer(size, 0);
    export_megatron(CorpusStore(corpus("a.h5", {{1}}, *tokenizer)), directory_ / "a");
    EXPECT_EQ(content("a.bin").size(), size < 65500 ? 2u : 4u);
  }
}

TEST_F(CorpusFiles, OfMegatronAreImported) {
  file("m.idx", kIndex);
  file("m.bin", kTokens);
  const CorpusStore store = imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer); });
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(ids_of(store), ElementsAre(5, 6, 256, 7));
  EXPECT_TRUE(store.sentence_offsets().empty());
}

TEST_F(CorpusFiles, OfMegatronWithEveryTypeOfWholeNumbersAreImported) {
  const auto import = [&](int code, const Bytes& tokens, std::int64_t size_of_token) {
    file("m.idx", Bytes()
                      .add_text({"MMIDIDX\0\0", 9})
                      .add<std::uint64_t>({1})
                      .add<std::uint8_t>({code})
                      .add<std::uint64_t>({2, 3})
                      .add<std::int32_t>({1, 2})
                      .add<std::int64_t>({2 * size_of_token, 0})  // the sequences need not lie in order
                      .add<std::int64_t>({0, 1, 2}));
    file("m.bin", tokens);
    return ids_of(imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer); }));
  };
  EXPECT_THAT(import(1, Bytes().add<std::uint8_t>({1, 2, 200}), 1), ElementsAre(200, 1, 2));
  EXPECT_THAT(import(2, Bytes().add<std::int8_t>({1, 2, 3}), 1), ElementsAre(3, 1, 2));
  EXPECT_THAT(import(3, Bytes().add<std::int16_t>({1, 2, 256}), 2), ElementsAre(256, 1, 2));
  EXPECT_THAT(import(4, Bytes().add<std::int32_t>({1, 2, 256}), 4), ElementsAre(256, 1, 2));
  EXPECT_THAT(import(5, Bytes().add<std::int64_t>({1, 2, 256}), 8), ElementsAre(256, 1, 2));
}

TEST_F(CorpusFiles, OfMegatronHaveSentencesWhereADocumentIsSeveralSequences) {
  const auto sentences = [&](std::initializer_list<std::int64_t> documents) {
    file("m.idx", Bytes()
                      .add_text({"MMIDIDX\0\0", 9})
                      .add<std::uint64_t>({1})
                      .add<std::uint8_t>({8})
                      .add<std::uint64_t>({2, static_cast<std::int64_t>(documents.size())})
                      .add<std::int32_t>({1, 1})
                      .add<std::int64_t>({0, 2})
                      .add<std::int64_t>(documents));
    file("m.bin", kTokens);
    return imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer); })
        .sentence_offsets()
        .size();
  };
  EXPECT_EQ(sentences({0, 1, 2}), 0u);
  EXPECT_EQ(sentences({0, 1, 1, 2}), 0u);  // a document without any
  EXPECT_EQ(sentences({0, 0, 2}), 3u);     // as many sequences as documents
}

TEST_F(CorpusFiles, OfMegatronKeepSentencesBothWays) {
  const Bytes index = Bytes()
                          .add_text({"MMIDIDX\0\0", 9})
                          .add<std::uint64_t>({1})
                          .add<std::uint8_t>({8})
                          .add<std::uint64_t>({3, 3})
                          .add<std::int32_t>({1, 2, 1})
                          .add<std::int64_t>({0, 2, 6})
                          .add<std::int64_t>({0, 2, 3});
  file("m.idx", index);
  file("m.bin", kTokens);
  const CorpusStore store = imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer); });
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 3, 4));
  EXPECT_THAT(store.sentence_offsets(), ElementsAre(0, 1, 3, 4));
  export_megatron(store, directory_ / "again");
  EXPECT_EQ(content("again.idx"), index.text());
  EXPECT_EQ(content("again.bin"), kTokens.text());
}

TEST_F(CorpusFiles, OfMegatronThatAreDamagedAreRefusedByName) {
  const auto changed = [](const Bytes& bytes, std::size_t at, char value) {
    std::string text = bytes.text();
    text[at] = value;
    return Bytes().add_text(text);
  };
  expect_bad_megatron(Bytes().add_text({"TNTIDX\0\0", 8}), kTokens, "old one, TNTIDX");
  expect_bad_megatron(Bytes().add_text("xx"), kTokens, "does not begin with MMIDIDX");
  expect_bad_megatron(changed(kIndex, 9, 2), kTokens, "bad.idx, byte 9: version 2");
  expect_bad_megatron(changed(kIndex, 17, 7), kTokens, "bad.idx, byte 17: type 7");
  expect_bad_megatron(changed(kIndex, 18, 2), kTokens, "bytes 18 and 26");
  expect_bad_megatron(changed(kIndex, 25, '\x80'), kTokens, "bytes 18 and 26");
  expect_bad_megatron(changed(kIndex, 33, '\x7f'), kTokens, "bytes 18 and 26");
  expect_bad_megatron(changed(kIndex, 34 + 3, '\x80'), kTokens, "bad.idx, byte 34: sequence 0 has -");
  expect_bad_megatron(changed(kIndex, 34, 5), kTokens, "bad.idx, byte 46: sequence 0 of 5 tokens");
  expect_bad_megatron(changed(kIndex, 46 + 7, '\x80'), kTokens, "bad.idx, byte 46: sequence 0 of 3 tokens");
  expect_bad_megatron(changed(kIndex, 70, 1), kTokens, "bad.idx, byte 70: documents should go from sequence 0 to 3");
  expect_bad_megatron(changed(kIndex, 78, 9), kTokens, "bad.idx, byte 78: document 0 ends with sequence 9");
  expect_bad_megatron(changed(kIndex, 78, 2 + 1), kTokens, "bad.idx, byte 86: document 1 ends with sequence 2");
  expect_bad_megatron(kIndex, changed(kTokens, 2, 2).pad_to(6), "sequence 2 of 1 tokens");
  expect_bad_megatron(kIndex, changed(kTokens, 3, 2), "bad.bin, byte 2: token 518");
  for (std::size_t size = 0; size < kIndex.text().size(); ++size) {
    expect_bad_megatron(Bytes(kIndex).pad_to(size), kTokens, "");
  }
}

Bytes llmc(std::int32_t magic, std::int32_t version, std::int32_t count) {
  return Bytes().add<std::int32_t>({magic, version, count}).pad_to(1024);
}

TEST_F(CorpusFiles, OfLlmCAreImportedAndCutBeforeEachEndOfDocument) {
  const std::string gpt2 = file("a.bin", llmc(20240520, 1, 6).add<std::uint16_t>({256, 1, 2, 256, 256, 3}));
  EXPECT_TRUE(is_llmc(gpt2));
  const CorpusStore store = imported(*narrow_, [&](auto& writer) { import_llmc(gpt2, 256, writer); });
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 3, 4, 6));
  EXPECT_THAT(ids_of(store), ElementsAre(256, 1, 2, 256, 256, 3));

  const std::string llama = file("b.bin", llmc(20240801, 7, 3).add<std::uint32_t>({5, 99'999, 70'000}));
  const CorpusStore wide = imported(*wide_, [&](auto& writer) { import_llmc(llama, 99'999, writer); });
  EXPECT_THAT(wide.document_offsets(), ElementsAre(0, 1, 3));
  EXPECT_THAT(ids_of(wide), ElementsAre(5, 99'999, 70'000));
  EXPECT_FALSE(is_llmc(file("c.bin", Bytes().add_text("abc"))));
  EXPECT_FALSE(is_llmc(file("c.bin", Bytes().add_text("abcd"))));
}

TEST_F(CorpusFiles, OfLlmCThatAreDamagedAreRefusedByName) {
  expect_bad_llmc(Bytes().add_text("abc"), "ends at byte 3");
  expect_bad_llmc(llmc(20240522, 1, 0), "byte 0: 20240522");
  expect_bad_llmc(llmc(20240520, 7, 0), "byte 4: version 7 is not 1");
  expect_bad_llmc(llmc(20240520, 1, 2).add<std::uint16_t>({1}), "2 tokens (byte 8)");
  expect_bad_llmc(llmc(20240520, 1, -1), "-1 tokens (byte 8)");
  expect_bad_llmc(llmc(20240520, 1, 0).pad_to(1000), "has 1000 bytes");
  expect_bad_llmc(llmc(20240520, 1, 2).add<std::uint16_t>({1, 257}), "byte 1026: token 257");
}

TEST_F(CorpusFiles, MergeOneAfterAnother) {
  const std::string a = corpus("a.h5", {{1, 2}, {}}, *narrow_);
  const std::string b = corpus("b.h5", {{3}}, *narrow_);
  const CorpusSize size = merge_corpora({b, a, b}, directory_ / "c.h5");
  EXPECT_EQ(size.documents, 4);
  EXPECT_EQ(size.tokens, 4);
  const CorpusStore store(directory_ / "c.h5");
  EXPECT_NO_THROW(store.verify());
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 1, 3, 3, 4));
  EXPECT_THAT(ids_of(store), ElementsAre(3, 1, 2, 3));
  EXPECT_THAT([&] { merge_corpora({a, b}, a); }, ThrowsMessage<ConfigError>(HasSubstr("both input and output")));
  EXPECT_THAT(
      [&] {
        merge_corpora({a, corpus("w.h5", {{1}}, *wide_)}, directory_ / "d.h5");
      },
      ThrowsMessage<DataError>(AllOf(HasSubstr(narrow_->digest()), HasSubstr(wide_->digest()))));
}

TEST_F(CorpusFiles, SplitAsARunSplitsThem) {
  Documents documents;
  for (std::int32_t d = 0; d < 120; ++d) documents.push_back(std::vector<std::int32_t>(d % 7, d));
  const CorpusStore whole(corpus("a.h5", documents, *narrow_));
  for (const auto by : {data::SplitBy::documents, data::SplitBy::tokens}) {
    const std::array<std::string, 3> outputs{directory_ / "t.h5", directory_ / "v.h5", directory_ / "e.h5"};
    const auto shares = data::parse_split("8,1,1");
    const auto sizes = split_corpus(whole.name(), shares, by, outputs);
    std::vector<std::int32_t> ids;
    for (const auto split : {data::Split::train, data::Split::valid, data::Split::test}) {
      const auto i = static_cast<std::size_t>(split);
      const data::DocumentRange range = data::documents_of(whole, split, shares, by);
      const CorpusStore part(outputs[i]);
      EXPECT_NO_THROW(part.verify());
      ASSERT_EQ(part.documents(), range.documents);
      EXPECT_EQ(sizes[i].tokens, range.tokens());
      for (std::int64_t d = 0; d <= range.documents; ++d) {
        const std::int64_t offset = d == 0 ? 0 : range.end(d - 1) - range.begin_token;
        EXPECT_EQ(part.document_offsets()[static_cast<std::size_t>(d)], offset);
      }
      const auto part_ids = ids_of(part);
      ids.insert(ids.end(), part_ids.begin(), part_ids.end());
    }
    EXPECT_EQ(ids, ids_of(whole));
  }
  const auto sizes = split_corpus(whole.name(), data::parse_split("1"), data::SplitBy::documents,
                                  {directory_ / "all.h5", directory_ / "none.h5", directory_ / "no.h5"});
  EXPECT_EQ(sizes[0].tokens, whole.token_count());
  EXPECT_EQ(sizes[1].documents, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "none.h5"));
}

TEST_F(CorpusFiles, SplitInsideSentences) {
  {
    CorpusWriter writer(directory_ / "s.h5", *narrow_);
    for (const std::int32_t size : {3, 2, 5}) {  // sentences of two documents
      writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(size), size));
      writer.end_sentence();
      if (size != 3) writer.end_document();
    }
    writer.finish();
  }
  split_corpus(directory_ / "s.h5", data::parse_split("4,2,4"), data::SplitBy::tokens,
               {directory_ / "t.h5", directory_ / "v.h5", directory_ / "e.h5"});
  EXPECT_THAT(CorpusStore(directory_ / "t.h5").sentence_offsets(), ElementsAre(0, 3, 4));
  EXPECT_THAT(CorpusStore(directory_ / "v.h5").sentence_offsets(), ElementsAre(0, 1, 2));
  EXPECT_THAT(CorpusStore(directory_ / "v.h5").document_offsets(), ElementsAre(0, 1, 2));
  EXPECT_THAT(CorpusStore(directory_ / "e.h5").sentence_offsets(), ElementsAre(0, 4));
  EXPECT_THAT(
      [&] {
        merge_corpora({directory_ / "s.h5", corpus("a.h5", {{1}}, *narrow_)}, directory_ / "m.h5");
      },
      ThrowsMessage<DataError>(HasSubstr("built with sentences")));
}

TEST_F(CorpusFiles, SampleTakesTheShareAndAGreaterOneMore) {
  Documents documents;
  for (std::int32_t d = 0; d < 2000; ++d) documents.push_back({d % 250});
  const std::string whole = corpus("a.h5", documents, *wide_);
  const CorpusSize tenth = sample_corpus(whole, 0.1, 1, directory_ / "b.h5");
  const CorpusSize third = sample_corpus(whole, 0.3, 1, directory_ / "c.h5");
  EXPECT_NEAR(static_cast<double>(tenth.documents), 200, 60);  // four standard deviations
  EXPECT_NEAR(static_cast<double>(third.documents), 600, 82);
  const auto more = ids_of(CorpusStore(directory_ / "c.h5"));
  auto at = more.begin();
  for (const std::int32_t id : ids_of(CorpusStore(directory_ / "b.h5"))) at = std::find(at, more.end(), id);
  EXPECT_NE(at, more.end());
  EXPECT_EQ(sample_corpus(whole, 1, 7, directory_ / "d.h5").documents, 2000);
  EXPECT_THROW(sample_corpus(whole, 0, 7, directory_ / "d.h5"), DataError);
}

/// Two corpora that say the same of the same documents.
void expect_same(const CorpusStore& a, const CorpusStore& b) {
  EXPECT_EQ(ids_of(a), ids_of(b));
  EXPECT_TRUE(std::ranges::equal(a.document_offsets(), b.document_offsets()));
  EXPECT_TRUE(std::ranges::equal(a.sentence_offsets(), b.sentence_offsets()));
  EXPECT_EQ(a.info().tokenizer_payload, b.info().tokenizer_payload);
  EXPECT_EQ(a.info().end_of_document, b.info().end_of_document);
}

TEST_F(CorpusFiles, ViewsHoldWhatCopiesDo) {
  Documents documents;
  for (std::int32_t d = 0; d < 300; ++d) documents.emplace_back(static_cast<std::size_t>(d % 7), d);
  const std::string a = corpus("a.h5", documents, *wide_);
  std::filesystem::create_directory(directory_ / "below");
  const std::string b = corpus("below/b.h5", {{1, 2, 3}, {}, {4}}, *wide_);
  const auto both = [&](const std::string& name, const auto& make) {
    make(directory_ / ("copy_" + name), CorpusKind::copy);
    make(directory_ / ("view_" + name), CorpusKind::view);
    const CorpusStore view(directory_ / ("view_" + name));
    EXPECT_TRUE(view.is_view());
    EXPECT_NO_THROW(view.verify());
    expect_same(view, CorpusStore(directory_ / ("copy_" + name)));
  };
  both("sample", [&](const std::string& path, CorpusKind kind) { sample_corpus(a, 0.3, 5, path, kind); });
  both("merged", [&](const std::string& path, CorpusKind kind) { merge_corpora({b, a, b}, path, kind); });
  both("train.h5", [&](const std::string& path, CorpusKind kind) {
    split_corpus(a, {0.5, 0.3, 0.2}, data::SplitBy::tokens, {path, path + "v", path + "t"}, kind);
  });
  expect_same(CorpusStore(directory_ / "view_train.h5v"), CorpusStore(directory_ / "copy_train.h5v"));
  // Of a view: the sources are taken, not the view.
  both("again", [&](const std::string& path, CorpusKind kind) {
    sample_corpus(directory_ / (kind == CorpusKind::view ? "view_merged" : "copy_merged"), 0.5, 9, path, kind);
  });
  EXPECT_EQ(CorpusStore(directory_ / "view_again").sources().size(), 2u);
  std::filesystem::remove(directory_ / "view_merged");
  EXPECT_NO_THROW(CorpusStore(directory_ / "view_again"));
  sample_corpus(directory_ / "view_again", 1, 1, directory_ / "copy_of_view");  // a copy again
  EXPECT_FALSE(CorpusStore(directory_ / "copy_of_view").is_view());
  expect_same(CorpusStore(directory_ / "copy_of_view"), CorpusStore(directory_ / "copy_again"));
  export_megatron(CorpusStore(directory_ / "view_again"), directory_ / "v");
  export_megatron(CorpusStore(directory_ / "copy_again"), directory_ / "c");
  EXPECT_EQ(content("v.bin"), content("c.bin"));
  EXPECT_EQ(content("v.idx"), content("c.idx"));
}

TEST_F(CorpusFiles, ViewsGiveTrainingTheSamplesThatCopiesDo) {
  Documents documents;
  for (std::int32_t d = 0; d < 200; ++d) documents.emplace_back(static_cast<std::size_t>(5 + d % 9), d);
  const std::string a = corpus("a.h5", documents, *narrow_);
  std::vector<std::vector<std::int32_t>> samples;
  for (const CorpusKind kind : {CorpusKind::copy, CorpusKind::view}) {
    sample_corpus(a, 0.5, 5, directory_ / "part.h5", kind);
    data::GptDataOptions options;
    options.sequence_length = 16;
    options.budgets = {{50, 2, 0}};
    const auto gpt = data::make_gpt_data({{std::make_shared<CorpusStore>(directory_ / "part.h5")}}, options);
    std::vector<std::int32_t>& all = samples.emplace_back();
    for (std::int64_t i = 0; i < 50; ++i) {
      std::vector<std::int32_t> ids(17);
      gpt.train->read(i, ids);
      all.insert(all.end(), ids.begin(), ids.end());
    }
  }
  EXPECT_EQ(samples[0], samples[1]);
}

TEST_F(CorpusFiles, ViewsKeepSentences) {
  CorpusWriter writer(directory_ / "a.h5", *narrow_);
  for (std::int32_t d = 0; d < 50; ++d) {
    for (std::int32_t s = 0; s <= d % 3; ++s) {
      writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(1 + s), d));
      writer.end_sentence();
    }
    writer.end_document();
  }
  writer.finish();
  sample_corpus(directory_ / "a.h5", 0.5, 2, directory_ / "copy.h5");
  sample_corpus(directory_ / "a.h5", 0.5, 2, directory_ / "view.h5", CorpusKind::view);
  expect_same(CorpusStore(directory_ / "view.h5"), CorpusStore(directory_ / "copy.h5"));
  EXPECT_FALSE(CorpusStore(directory_ / "view.h5").sentence_offsets().empty());
}

TEST_F(CorpusFiles, ViewsFindThatASourceIsGoneOrChanged) {
  std::filesystem::create_directory(directory_ / "x");
  const std::string a = corpus("x/a.h5", {{1, 2}, {3}}, *narrow_);
  const std::string view = directory_ / "x/view.h5";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_ / "x");
  merge_corpora({"a.h5", a}, "view.h5", CorpusKind::view);
  std::filesystem::current_path(before);
  EXPECT_THAT([&] { merge_corpora({view}, a); }, ThrowsMessage<ConfigError>(HasSubstr("is both input and output")));
  std::filesystem::rename(directory_ / "x", directory_ / "y");  // both moved
  const std::string moved = directory_ / "y/view.h5";
  EXPECT_THAT(ids_of(CorpusStore(moved)), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT([&] { merge_corpora({moved}, directory_ / "y/a.h5", CorpusKind::view); },
              ThrowsMessage<ConfigError>(HasSubstr("is both")));
  std::filesystem::rename(directory_ / "y/a.h5", directory_ / "a.h5");
  EXPECT_THAT(
      [&] { CorpusStore{moved}; },
      ThrowsMessage<IoError>(AllOf(HasSubstr("y/view.h5 is a view of"), HasSubstr("a.h5"), HasSubstr("No such file"),
                                   HasSubstr("put that corpus back, or make the view again"))));
  corpus("y/a.h5", {{1, 2}, {4}}, *narrow_);
  EXPECT_THAT([&] { CorpusStore{moved}; },
              ThrowsMessage<DataError>(HasSubstr("which has changed since: its digest was")));
  std::filesystem::copy(moved, directory_ / "y/a.h5", std::filesystem::copy_options::overwrite_existing);  // itself
  EXPECT_THAT([&] { CorpusStore{moved}; }, ThrowsMessage<DataError>(HasSubstr("is a view itself")));
}

TEST_F(CorpusFiles, ViewsThatAreDamagedAreRefused) {
  const std::string a = corpus("a.h5", {{1, 2}, {3}, {4, 5, 6}}, *narrow_);
  sample_corpus(a, 0.9, 3, directory_ / "view.h5", CorpusKind::view);
  const std::string good = content("view.h5");
  const auto ids = ids_of(CorpusStore(directory_ / "view.h5"));
  for (std::size_t at = 0; at < good.size(); at += 13) {
    std::string bad = good;
    bad[at] ^= 4;
    std::ofstream(directory_ / "bad.h5", std::ios::binary) << bad;
    try {
      EXPECT_EQ(ids_of(CorpusStore(directory_ / "bad.h5")), ids) << at;
    } catch (const DataError&) {
    } catch (const IoError&) {  // another name of the source
    }
    std::filesystem::remove(directory_ / "bad.h5");
  }
}

TEST_F(CorpusFiles, CopiesFindDamageAndLeaveNothing) {
  std::vector<std::int32_t> ids(corpus_block_tokens + 7, 3);
  const std::string path = corpus("a.h5", {ids}, *narrow_);
  std::string bytes = content("a.h5");
  const std::string tail("\3\0\3\0\3\0\3\0", 8);
  bytes[bytes.rfind(tail)] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT([&] { merge_corpora({path}, directory_ / "b.h5"); },
              ThrowsMessage<DataError>(HasSubstr("tokens 1048576 to 1048582")));
  EXPECT_THAT([&] { export_megatron(CorpusStore(path), directory_ / "b"); },
              ThrowsMessage<DataError>(HasSubstr("tokens 1048576 to 1048582")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(CorpusFiles, AreNotWrittenByTwoAtOnce) {
  const std::string a = corpus("a.h5", {{1, 2}}, *narrow_);
  const FolderLock other(directory_ / "b.h5.lock", "b.h5");
  EXPECT_THAT([&] { merge_corpora({a}, directory_ / "b.h5"); },
              ThrowsMessage<EnvironmentError>(HasSubstr("in use by another job")));
}

}  // namespace
}  // namespace trireme::io
