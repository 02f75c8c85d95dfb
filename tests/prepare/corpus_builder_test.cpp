#include "src/prepare/corpus_builder.hpp"
#include "src/base/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/corpus/corpus_store.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/check.hpp"
#include "src/base/error.hpp"
#include "src/base/philox.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/prepare/disk.hpp"
#include "tests/support/small_bpe.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::prepare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Random sequence of words, numbers, all kinds of white space, apostrophes and characters of all sizes.
std::string random_text(std::uint32_t seed, int parts) {
  static const std::vector<std::string_view> alphabet = split(
      "the/an/in/'s/'t/12/7/,/--/ / / /  /   /\n/\n\n/\r\n/\t/\v/\xC2\x85/\xC2\xA0/\xE1\x9A\x80/"
      "\xE2\x80\x83/\xE2\x80\xA8/\xE3\x80\x80/\x1C/\xEF\xBB\xBF/\u00f6/\u6f22\u5b57/\xF0\x9F\x98\x80/"
      "\xE2\x80\x9D/\x7F/<|endoftext|>",
      '/');
  std::string text = "x";  // a leading byte-order mark is refused
  for (int i = 0; i < parts; ++i) {
    text += alphabet[philox4x32(seed, {static_cast<std::uint32_t>(i)})[0] % alphabet.size()];
  }
  return text;
}

class CorpusBuilder : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
    options_.inputs.push_back(directory_ / name);
  }
  CorpusBuildReport build(int threads = 2) {
    ThreadPool pool(threads);
    SelfCommunicator self;
    return build_corpus(disk, options_, *tokenizer_, pool, self, [&](std::int64_t done, std::int64_t total) {
      EXPECT_LE(done, total);
      progress_ = done;
    });
  }
  void use_small_bpe() {
    const test::SmallBpe files(directory_.path());
    tokenizer_ = data::make_gpt2_tokenizer(io::read_bpe_files(files.vocabulary_path, files.merges_path));
  }
  /// Builds the corpus of one text, and compares its tokens with those of the complete text.
  void expect_tokens_of(const std::string& text, std::int64_t piece_bytes, int threads) {
    const auto expected = test::encode(*tokenizer_, text);
    options_.inputs.clear();
    file("a.txt", text);
    options_.text.reader.piece_bytes = piece_bytes;
    build(threads);
    ASSERT_EQ(ids(), expected) << "pieces of " << piece_bytes << " bytes of: " << text;
  }
  /// The tokens of the corpus.
  std::vector<std::int32_t> ids() const {
    const io::CorpusStore store(options_.output);
    return std::visit([](const auto& span) { return std::vector<std::int32_t>(span.begin(), span.end()); },
                      store.tokens(0, store.token_count()));
  }

  test::TemporaryDirectory directory_;
  CorpusBuildOptions options_{.inputs = {}, .output = directory_ / "corpus.h5", .text = {}};
  std::unique_ptr<data::Tokenizer> tokenizer_ = data::make_byte_tokenizer();
  std::int64_t progress_ = 0;
};

TEST_F(CorpusBuilder, EndsDocumentsOnRequestAndOmitsEmptyOnes) {
  file("a.txt", "ab");
  file("b.txt", "");
  file("c.jsonl", "{\"text\": \"c\"}\n{\"text\": \"\"}\n{\"text\": \"d\"}\n");
  const CorpusBuildReport plain = build();
  EXPECT_THAT(ids(), ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(io::CorpusStore(options_.output).document_offsets(), ElementsAre(0, 2, 3, 4));
  EXPECT_EQ(plain.documents, 3);
  EXPECT_EQ(plain.counts.empty_documents, 2);
  EXPECT_EQ(plain.tokens, 4);
  EXPECT_EQ(plain.counts.text_bytes, 4);
  EXPECT_EQ(progress_, 43);
  options_.text.append_end_of_document = true;
  EXPECT_EQ(build().tokens, 7);
  EXPECT_THAT(ids(), ElementsAre('a', 'b', 256, 'c', 256, 'd', 256));
  EXPECT_NO_THROW(io::CorpusStore(options_.output).verify());
}

TEST_F(CorpusBuilder, MarksWhatIsLearnedOfConversationsInAllParts) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "ask" + std::string(static_cast<std::size_t>(i % 5), '!') + ">answer\n";
  file("a.jsonl", lines + "bad\n");
  // The text after ">" is learned.
  options_.text.chat = {.render =
                            [](std::string_view line, const std::string& where) {
                              const std::size_t at = line.find('>');
                              TRIREME_CHECK(at != line.npos, DataError, "{}: no answer", where);
                              return data::jinja::Rendering{std::string(line), {{at + 1, line.size()}}};
                            },
                        .digest = "1"};
  options_.part_bytes = 100;
  EXPECT_THAT([&] { build(); }, ThrowsMessage<DataError>(HasSubstr("a.jsonl:41: no answer")));
  options_.text.skip_bad_lines = true;
  const CorpusBuildReport report = build();
  EXPECT_EQ(report.documents, 40);
  EXPECT_EQ(report.counts.bad_lines, 1);
  EXPECT_EQ(report.counts.learned_tokens, 240);
  EXPECT_EQ(report.counts.learned_stops, 0);
  const io::CorpusStore store(options_.output);
  EXPECT_NO_THROW(store.verify());
  ASSERT_EQ(store.learned_ranges()->size(), 40);
  for (std::size_t i = 0; i < 40; ++i) {
    const std::int64_t end = store.document_offsets()[i + 1];
    EXPECT_EQ((*store.learned_ranges())[i], (data::LearnedRange{end - 6, end}));
  }
  options_.text.chat->digest = "2";  // another template makes other parts
  options_.text.skip_bad_lines = false;
  EXPECT_THROW(build(), DataError);
}

// Property: the tokens do not depend on cuts, threads or batches.
TEST_F(CorpusBuilder, TokensDoNotDependOnWhereTheTextIsCut) {
  use_small_bpe();
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    const std::string text = random_text(seed, 400);
    for (const std::int64_t piece_bytes : {1, 7, 64}) {
      expect_tokens_of(text, piece_bytes, 1 + static_cast<int>(seed % 3));
    }
  }
}

TEST_F(CorpusBuilder, PutsASpaceBeforeATextAloneWhereverItIsCut) {
  tokenizer_ =
      data::make_huggingface_tokenizer(test::characters_of({{"a", "n"}, {"\u2581", "an"}, {"\u2581", "\u2581"}}));
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    for (const std::int64_t piece_bytes : {1, 64}) expect_tokens_of(random_text(seed, 400), piece_bytes, 2);
  }
  options_.inputs.clear();
  file("a.jsonl", "{\"text\": \"an an\"}\n{\"text\": \"an\"}\n");
  build();
  const std::int32_t an = test::encode(*tokenizer_, "an").at(0);
  EXPECT_THAT(ids(), ElementsAre(an, an, an));
}

TEST_F(CorpusBuilder, CutsInvalidUtf8SafelyToo) {
  use_small_bpe();
  options_.text.reader.check_utf8 = false;
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    std::string text = random_text(seed, 200);
    for (std::uint32_t i = 0; i < text.size(); i += 3) {
      const auto random = philox4x32(seed, {i, 1});
      if (random[0] % 3 == 0) text[i] = static_cast<char>(random[1]);
    }
    expect_tokens_of(text, 1, 2);
  }
}

TEST_F(CorpusBuilder, WritesTheSameBytesWhateverTheThreadsAndTheTime) {
  std::string lines;
  for (std::uint32_t i = 0; i < 500; ++i) lines += fmt::format("{{\"text\": \"line {} of many\"}}\n", i * i);
  file("a.jsonl", lines);
  file("b.txt", random_text(3, 5000));
  options_.text.reader.piece_bytes = 500;
  build(1);
  const std::string first = test::content_of(options_.output);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // reveals a time stamp
  build(4);
  EXPECT_EQ(test::content_of(options_.output), first);
}

// Ranks and restarts work on parts. Tokens and documents do not depend on where these are cut.
TEST_F(CorpusBuilder, GivesTheSameCorpusWhereverTheInputIsCutIntoParts) {
  use_small_bpe();
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += fmt::format("{{\"text\": \"{} \"}}\n{}", i * i, i % 9 == 0 ? "\n \n" : "");
  file("a.jsonl", lines + "{\"text\": \"no end\"}");
  file("b.txt", random_text(5, 600));
  file("c.txt", "");
  file("d.txt", random_text(6, 10));
  file("e.txt", random_text(7, 300));
  options_.text.append_end_of_document = true;
  const CorpusBuildReport whole_report = build();
  const std::string first = test::content_of(options_.output);
  for (const std::int64_t part_bytes : {1, 5, 33, 250, 1000}) {
    options_.part_bytes = part_bytes;
    const CorpusBuildReport report = build();
    EXPECT_EQ(report.documents, whole_report.documents);
    EXPECT_EQ(report.counts.empty_documents, 1);
    EXPECT_EQ(report.counts.text_bytes, whole_report.counts.text_bytes);
    ASSERT_EQ(test::content_of(options_.output), first) << "parts of " << part_bytes;
    EXPECT_FALSE(std::filesystem::exists(options_.output + ".parts"));
  }
}

// Blocks have a million tokens: those of the first parts are copied while later parts are made.
TEST_F(CorpusBuilder, GivesTheSameCorpusFromSeveralBlocksAndParts) {
  for (int i = 0; i < 12; ++i) {
    std::string text = random_text(static_cast<std::uint32_t>(i), 2000);
    while (text.size() < 300'000) text += text;
    file(fmt::format("{}.txt", i), text);
  }
  build();
  const std::string first = test::content_of(options_.output);
  for (const std::int64_t part_bytes : {100'000, 700'000}) {
    options_.part_bytes = part_bytes;
    build();
    EXPECT_TRUE(test::content_of(options_.output) == first) << "parts of " << part_bytes;
  }
  EXPECT_GT(io::CorpusStore(options_.output).blocks(), 2);
}

TEST_F(CorpusBuilder, RefusesATextThatGrowsWhileItIsRead) {
  file("a.txt", random_text(1, 2000));
  file("b.txt", random_text(2, 10));
  options_.part_bytes = 1000;
  bool grew = false;
  ThreadPool pool(1);
  SelfCommunicator self;
  const auto grow = [&](std::int64_t, std::int64_t) {
    if (!std::exchange(grew, true)) std::ofstream(directory_ / "b.txt", std::ios::app) << " more";
  };
  EXPECT_THAT([&] { build_corpus(disk, options_, *tokenizer_, pool, self, grow); },
              ThrowsMessage<DataError>(HasSubstr("b.txt changed while it was read")));
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(CorpusBuilder, CutsRunsWithoutABoundaryAndCountsThem) {
  use_small_bpe();
  options_.text.reader.piece_bytes = 50;
  options_.text.reader.max_uncut_bytes = 100;
  file("a.txt", std::string(350, 'x') + " y");
  file("b.jsonl", "{\"text\": \"" + std::string(250, 'z') + "\"}\n");
  EXPECT_EQ(build().counts.forced_cuts, 5);
  EXPECT_EQ(test::decode(*tokenizer_, ids()), std::string(350, 'x') + " y" + std::string(250, 'z'));
  options_.part_bytes = 20;
  EXPECT_GE(build().counts.forced_cuts, 3);
  EXPECT_EQ(test::decode(*tokenizer_, ids()), std::string(350, 'x') + " y" + std::string(250, 'z'));
}

TEST_F(CorpusBuilder, ResumesAndRebuildsPartsWhoseTextChanged) {
  std::string lines;
  for (int i = 100; i < 200; ++i) lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  file("a.jsonl", lines);
  file("b.jsonl", lines + "nonsense\n");
  options_.part_bytes = 500;
  EXPECT_THAT([&] { build(); }, ThrowsMessage<DataError>(HasSubstr("b.jsonl:101:2: not JSON")));
  options_.inputs.clear();
  std::string changed = lines;
  file("a.jsonl", changed.replace(changed.find("150"), 3, "another"));
  file("b.jsonl", lines);
  build();
  const std::string continued = test::content_of(options_.output);
  build();
  EXPECT_EQ(test::content_of(options_.output), continued);
}

TEST_F(CorpusBuilder, RemovesPartsOfAnotherInputButNoOtherFiles) {
  file("a.jsonl", "nonsense");
  file("b.txt", "text");
  options_.part_bytes = 4;
  const std::string folder = options_.output + ".parts";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/notes") << "of somebody";
  EXPECT_THAT([&] { build(); },
              ThrowsMessage<IoError>(HasSubstr("files that this program did not leave there, notes")));
  EXPECT_EQ(test::content_of(folder + "/notes"), "of somebody");
  std::filesystem::remove_all(folder);

  const std::string old_part = folder + "/" + std::string(32, 'a');
  std::filesystem::create_directory(folder);
  std::ofstream(old_part) << "of other options";
  std::ofstream(old_part + ".partial-01234567") << "half";
  EXPECT_THROW(build(), DataError);
  EXPECT_FALSE(std::filesystem::exists(old_part));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(CorpusBuilder, CountsNamesOfSpecialTokensForAnyPartsAndInAResumedBuild) {
  use_small_bpe();
  std::string text, lines;
  for (int i = 0; i < 40; ++i) text += "a <|endoftext|><|endoftext|>, <|endoftext and ";
  for (int i = 0; i < 10; ++i)
    lines += R"({"text": "a \u003c|endoftext|>", "title": "<|endoftext|>"})"
             "\n";
  file("a.txt", text);
  file("b.jsonl", lines + "nonsense\n");
  options_.part_bytes = 100;
  EXPECT_THROW(build(), DataError);
  options_.inputs.pop_back();
  file("b.jsonl", lines);
  EXPECT_THAT(build().counts.special_tokens, ElementsAre(::testing::Pair("<|endoftext|>", 90)));
  options_.part_bytes = 1 << 20;
  EXPECT_THAT(build(1).counts.special_tokens, ElementsAre(::testing::Pair("<|endoftext|>", 90)));
}

TEST_F(CorpusBuilder, FindsAPartThatWasDamagedMeanwhile) {
  file("a.txt", "one two three");
  file("b.jsonl", "nonsense");
  options_.part_bytes = 4;
  EXPECT_THROW(build(), DataError);
  for (const auto& entry : std::filesystem::directory_iterator(options_.output + ".parts")) {
    std::fstream(entry.path(), std::ios::binary | std::ios::in | std::ios::out).put('#');
  }
  options_.inputs.pop_back();
  file("b.jsonl", "{\"text\": \"good\"}");
  EXPECT_THAT([&] { build(); }, ThrowsMessage<DataError>(HasSubstr("is damaged; delete it")));
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(CorpusBuilder, FindsAPartWhoseSummaryWasDamaged) {
  file("a.txt", "one two three");
  file("b.jsonl", "nonsense");
  options_.part_bytes = 4;
  EXPECT_THROW(build(), DataError);
  for (const auto& entry : std::filesystem::directory_iterator(options_.output + ".parts")) {
    std::fstream part(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    const std::string bytes{std::istreambuf_iterator<char>(part), {}};
    const std::size_t at = bytes.find("\"greatest_id\":");
    ASSERT_NE(at, bytes.npos);
    part.seekp(static_cast<std::streamoff>(bytes.find(':', at) + 1));
    part.put('9');
  }
  options_.inputs.pop_back();
  EXPECT_THAT([&] { build(); }, ThrowsMessage<DataError>(HasSubstr("is damaged; delete it")));
}

TEST_F(CorpusBuilder, NeverSkipsPartsOfATextThatAreNotUtf8) {
  file("a.txt", "good \xFF bad");
  options_.text.skip_bad_lines = true;
  EXPECT_THROW(build(), DataError);
}

}  // namespace
}  // namespace trireme::prepare
