#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/corpus/foreign_corpus.hpp"
#include "tests/io/corpus/corpus_files.hpp"

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

/// Returns an index file of Megatron-LM.
Bytes index_of(std::int64_t type, std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> begins,
               std::initializer_list<std::int64_t> documents) {
  return Bytes()
      .add_text({"MMIDIDX\0\0", 9})
      .add<std::uint64_t>({1})
      .add<std::uint8_t>({type})
      .add<std::uint64_t>({std::ssize(sizes), std::ssize(documents)})
      .add<std::int32_t>(sizes)
      .add<std::int64_t>(begins)
      .add<std::int64_t>(documents);
}

/// Corpora in the files of other programs.
class ForeignCorpora : public CorpusFiles {
 protected:
  std::string file(const std::string& name, const Bytes& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes.text();
    return directory_ / name;
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
};

// The files that Megatron-LM's builder writes of documents (5, 6, 256), () and (7).
const Bytes index_bytes = index_of(8, {3, 0, 1}, {0, 6, 6}, {0, 1, 2, 3});
const Bytes token_bytes = Bytes().add<std::uint16_t>({5, 6, 256, 7});

TEST_F(ForeignCorpora, AreExportedAsMegatronsBuilderWritesThem) {
  export_megatron(CorpusStore(corpus("a.h5", {{5, 6, 256}, {}, {7}}, *narrow_)), directory_ / "a");
  EXPECT_EQ(content("a.idx"), index_bytes.text());
  EXPECT_EQ(content("a.bin"), token_bytes.text());

  export_megatron(CorpusStore(corpus("b.h5", {{70'000, 6}, {99'999}}, *wide_)), directory_ / "b");
  EXPECT_EQ(content("b.idx"), index_of(4, {2, 1}, {0, 8}, {0, 1, 2}).text());
  EXPECT_EQ(content("b.bin"), Bytes().add<std::int32_t>({70'000, 6, 99'999}).text());
}

TEST_F(ForeignCorpora, UseThirtyTwoBitsFromMegatronsLimit) {
  for (const std::int64_t size : {65499, 65500}) {
    const auto tokenizer = data::make_null_tokenizer(size, 0);
    export_megatron(CorpusStore(corpus("a.h5", {{1}}, *tokenizer)), directory_ / "a");
    EXPECT_EQ(content("a.bin").size(), size < 65500 ? 2u : 4u);
  }
}

TEST_F(ForeignCorpora, ImportEveryIntegerTypeOfMegatron) {
  const auto import = [&](int code, const Bytes& tokens, std::int64_t size_of_token) {
    // The sequences need not lie in order.
    file("m.idx", index_of(code, {1, 2}, {2 * size_of_token, 0}, {0, 1, 2}));
    file("m.bin", tokens);
    return ids_of(imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer); }));
  };
  EXPECT_THAT(import(1, Bytes().add<std::uint8_t>({1, 2, 200}), 1), ElementsAre(200, 1, 2));
  EXPECT_THAT(import(2, Bytes().add<std::int8_t>({1, 2, 3}), 1), ElementsAre(3, 1, 2));
  EXPECT_THAT(import(3, Bytes().add<std::int16_t>({1, 2, 256}), 2), ElementsAre(256, 1, 2));
  EXPECT_THAT(import(4, Bytes().add<std::int32_t>({1, 2, 256}), 4), ElementsAre(256, 1, 2));
  EXPECT_THAT(import(5, Bytes().add<std::int64_t>({1, 2, 256}), 8), ElementsAre(256, 1, 2));
}

TEST_F(ForeignCorpora, ImportSequencesOfMegatronAsSentences) {
  const auto sentences = [&](std::initializer_list<std::int64_t> documents,
                             Sequences sequences = Sequences::automatic) {
    file("m.idx", index_of(8, {1, 1}, {0, 2}, documents));
    file("m.bin", Bytes().add<std::uint16_t>({5, 6}));
    return imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer, sequences); })
        .sentence_offsets()
        .size();
  };
  EXPECT_EQ(sentences({0, 1, 2}), 0u);
  EXPECT_EQ(sentences({0, 1, 1, 2}), 0u);  // a document without any
  EXPECT_EQ(sentences({0, 0, 2}), 3u);     // as many sequences as documents
  EXPECT_EQ(sentences({0, 1, 2}, Sequences::sentences), 3u);
}

TEST_F(ForeignCorpora, KeepSentencesToAndFromMegatron) {
  const Bytes index = index_of(8, {1, 2, 1}, {0, 2, 6}, {0, 2, 3});
  file("m.idx", index);
  file("m.bin", token_bytes);
  const CorpusStore store = imported(*narrow_, [&](auto& writer) { import_megatron(directory_ / "m", writer); });
  EXPECT_THAT(store.document_offsets(), ElementsAre(0, 3, 4));
  EXPECT_THAT(store.sentence_offsets(), ElementsAre(0, 1, 3, 4));
  export_megatron(store, directory_ / "again");
  EXPECT_EQ(content("again.idx"), index.text());
  EXPECT_EQ(content("again.bin"), token_bytes.text());

  file("flat.idx", index_bytes);
  file("flat.bin", token_bytes);
  for (const bool is_first : {true, false}) {
    CorpusWriter writer(directory_ / "mixed.h5", *narrow_);
    import_megatron(directory_ / (is_first ? "m" : "flat"), writer);
    EXPECT_THAT([&] { import_megatron(directory_ / (is_first ? "flat" : "m"), writer); },
                ThrowsMessage<DataError>(HasSubstr("Try a corpus for each kind")));
  }
}

TEST_F(ForeignCorpora, RefuseDamagedFilesOfMegatronByName) {
  const auto changed = [](const Bytes& bytes, std::size_t at, char value) {
    std::string text = bytes.text();
    text[at] = value;
    return Bytes().add_text(text);
  };
  expect_bad_megatron(Bytes().add_text({"TNTIDX\0\0", 8}), token_bytes, "old one, TNTIDX");
  expect_bad_megatron(Bytes().add_text("xx"), token_bytes, "does not begin with MMIDIDX");
  expect_bad_megatron(changed(index_bytes, 9, 2), token_bytes, "bad.idx, byte 9: version 2");
  expect_bad_megatron(changed(index_bytes, 17, 7), token_bytes, "bad.idx, byte 17: token type 7");
  expect_bad_megatron(changed(index_bytes, 18, 2), token_bytes, "bytes 18 and 26");
  expect_bad_megatron(changed(index_bytes, 25, '\x80'), token_bytes, "bytes 18 and 26");
  expect_bad_megatron(changed(index_bytes, 33, '\x7f'), token_bytes, "bytes 18 and 26");
  expect_bad_megatron(changed(index_bytes, 34 + 3, '\x80'), token_bytes, "bad.idx, byte 34: sequence 0 has -");
  expect_bad_megatron(changed(index_bytes, 34, 5), token_bytes, "bad.idx, byte 46: sequence 0 of 5 tokens");
  expect_bad_megatron(changed(index_bytes, 46 + 7, '\x80'), token_bytes, "bad.idx, byte 46: sequence 0 of 3 tokens");
  expect_bad_megatron(changed(index_bytes, 70, 1), token_bytes,
                      "bad.idx, byte 70: documents should go from sequence 0 to 3");
  expect_bad_megatron(changed(index_bytes, 78, 9), token_bytes, "bad.idx, byte 78: document 0 ends with sequence 9");
  expect_bad_megatron(changed(index_bytes, 78, 2 + 1), token_bytes,
                      "bad.idx, byte 86: document 1 ends with sequence 2");
  expect_bad_megatron(index_bytes, changed(token_bytes, 2, 2).pad_to(6), "sequence 2 of 1 tokens");
  expect_bad_megatron(index_bytes, changed(token_bytes, 3, 2), "bad.bin, byte 2: token 518");
  expect_bad_megatron(index_bytes, Bytes(token_bytes).pad_to(9), "bad.bin has 9 bytes, but no sequence of ");
  expect_bad_megatron(changed(index_bytes, 34, 2), token_bytes, "takes those from 4 on");
  expect_bad_megatron(changed(index_bytes, 62, 4), token_bytes, "bad.idx: sequences overlap at byte 4");
  for (std::size_t size = 0; size < index_bytes.text().size(); ++size) {
    expect_bad_megatron(Bytes(index_bytes).pad_to(size), token_bytes, "");
  }
}

Bytes llmc(std::int32_t magic, std::int32_t version, std::int32_t count) {
  return Bytes().add<std::int32_t>({magic, version, count}).pad_to(1024);
}

TEST_F(ForeignCorpora, ImportLlmCAndCutBeforeEachEndOfDocument) {
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

TEST_F(ForeignCorpora, RefuseDamagedFilesOfLlmCByName) {
  expect_bad_llmc(Bytes().add_text("abc"), "ends at byte 3");
  expect_bad_llmc(llmc(20240522, 1, 0), "byte 0: 20240522");
  expect_bad_llmc(llmc(20240520, 7, 0), "byte 4: version 7 is not 1");
  expect_bad_llmc(llmc(20240520, 1, 2).add<std::uint16_t>({1}), "2 tokens (byte 8)");
  expect_bad_llmc(llmc(20240520, 1, -1), "-1 tokens (byte 8)");
  expect_bad_llmc(llmc(20240520, 1, 0).pad_to(1000), "has 1000 bytes");
  expect_bad_llmc(llmc(20240520, 1, 2).add<std::uint16_t>({1, 257}), "byte 1026: token 257");
}

}  // namespace
}  // namespace trireme::io
