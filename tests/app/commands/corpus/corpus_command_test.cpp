#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/corpus/corpus_store.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/app/commands/command_test.hpp"
#include "tests/support/small_bpe.hpp"

namespace trireme::app {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class CorpusCommand : public CommandTest {
 protected:
  CorpusCommand() : CommandTest("corpus") {}
  int build(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"build", "--output", corpus_});
    return run(arguments);
  }
  std::string decoded() const {
    const io::CorpusStore store(corpus_);
    const auto tokenizer = data::tokenizer_from_payload(store.info().tokenizer, store.info().tokenizer_payload);
    std::string text;
    std::visit(
        [&](const auto& tokens) { tokenizer->decode(std::vector<std::int32_t>(tokens.begin(), tokens.end()), text); },
        store.tokens(0, store.token_count()));
    return text;
  }

  std::string corpus_ = directory_ / "corpus.h5";
};

TEST_F(CorpusCommand, BuildsInspectsAndVerifies) {
  const std::string text = file("a.txt", "Tab\there,\nand zwölf\x1b.\n");
  const std::string lines = file("b.jsonl", "{\"body\": \"second\"}\n");
  EXPECT_EQ(build({"--input", text, lines, "--json-key", "body", "--tokenizer", "bytes", "--append-eod"}), 0)
      << message_;
  EXPECT_EQ(run({"inspect", corpus_}), 0);
  EXPECT_THAT(output_,
              AllOf(HasSubstr("documents        2\n"), HasSubstr("bytes, 257 ids"),
                    HasSubstr("Tab\\x09here,\\nand zwölf\\x1b.\\n\n"), HasSubstr("document 1, 7 tokens: second")));
  EXPECT_EQ(run({"inspect", corpus_, "--documents", "1", "--tokens", "3"}), 0);
  EXPECT_THAT(output_, HasSubstr("tokens: Tab ...\n"));
  EXPECT_EQ(run({"inspect", corpus_, "--documents", "1", "--tokens", "9223372036854775807"}), 2);
  EXPECT_EQ(run({"verify", corpus_}), 0);
  EXPECT_THAT(output_, HasSubstr("is complete: 2 documents"));
}

TEST_F(CorpusCommand, PrintsAndDrawsTheLengthsOfDocuments) {
  const std::string lines = file("a.jsonl", "{\"text\": \"1234567\"}\n{\"text\": \"1\"}\n{\"text\": \"12\"}\n");
  ASSERT_EQ(build({"--input", lines, "--tokenizer", "bytes"}), 0) << message_;
  const std::string svg = directory_ / "lengths.svg";
  EXPECT_EQ(run({"inspect", corpus_, corpus_, "--statistics", "--svg", svg}), 0) << message_;
  EXPECT_THAT(output_,
              AllOf(HasSubstr("           6               20        3.3         1"), HasSubstr("           7  all\n"),
                    HasSubstr("                 2 to 3       33.33 %      20.00 %  #################\n"),
                    HasSubstr("                 4 to 7       33.33 %      70.00 %  #################\n")));
  EXPECT_THAT(test::content_of(svg), AllOf(HasSubstr("<title>2 to 3 tokens: 20.00 % of the tokens</title>"),
                                           HasSubstr("6 documents of 2 corpus files</title>"), EndsWith("</svg>\n")));
  EXPECT_EQ(run({"inspect", corpus_, corpus_}), 2);
  EXPECT_THAT(message_, HasSubstr("several corpora need --statistics"));
  EXPECT_EQ(run({"inspect", corpus_, "--svg", svg}), 2);
  EXPECT_THAT(message_, HasSubstr("--svg needs --statistics"));
}

TEST_F(CorpusCommand, KeepsSentencesWithTheTokensOfTheText) {
  const std::string text = file("a.txt", "Mr. Hu rows. \"No!\" He rests.\n\nThe end");
  const std::string lines = file("b.jsonl", "{\"text\": \"One. Two.\"}\n{\"text\": \"\"}\n");
  const std::vector<std::string> input{"--input", text, lines, "--tokenizer", "bytes", "--append-eod"};
  ASSERT_EQ(build(input), 0) << message_;
  const std::string without = decoded();
  auto splitting = input;
  splitting.emplace_back("--split-sentences");
  ASSERT_EQ(build(splitting), 0) << message_;
  EXPECT_EQ(decoded(), without);
  const io::CorpusStore store(corpus_);
  EXPECT_THAT(store.document_offsets(), ::testing::ElementsAre(0, 38, 48));
  EXPECT_THAT(store.sentence_offsets(), ::testing::ElementsAre(0, 12, 18, 28, 38, 42, 48));
  EXPECT_EQ(run({"inspect", corpus_}), 0);
  EXPECT_THAT(output_, HasSubstr("sentences        6, mean 8.0 tokens"));
  EXPECT_EQ(run({"verify", corpus_}), 0);
}

TEST_F(CorpusCommand, BuildsWithEveryTokenizerAndRefusesFilesOfAnother) {
  const std::string text = file("a.txt", "a b\n");
  const std::string vocabulary = file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
  EXPECT_EQ(build({"--input", text, "--tokenizer", "wordpiece", "--vocab-file", vocabulary}), 0) << message_;
  EXPECT_EQ(decoded(), "a b");
  EXPECT_EQ(build({"--input", text, "--tokenizer", "wordpiece"}), 2);
  EXPECT_THAT(message_, HasSubstr("--tokenizer wordpiece needs --vocab-file (vocab.txt)"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "wordpiece", "--vocab-file", text}), 3);
  EXPECT_THAT(message_, HasSubstr("a.txt do not make a tokenizer: the vocabulary has no [UNK]"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "huggingface"}), 2);
  EXPECT_THAT(message_, HasSubstr("--tokenizer huggingface needs --tokenizer-model (tokenizer.json)"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "huggingface", "--tokenizer-model", text}), 3);
  EXPECT_EQ(build({"--input", text, "--tokenizer", "bytes", "--cased"}), 2);
  EXPECT_THAT(message_, HasSubstr("--cased is for wordpiece"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "bytes", "--max-word-characters", "200"}), 2);
  EXPECT_THAT(message_, HasSubstr("--max-word-characters is for wordpiece"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "bytes", "--eod-token", "</s>"}), 2);
  EXPECT_THAT(message_, HasSubstr("--tokenizer bytes takes no --eod-token"));
}

TEST_F(CorpusCommand, VerifyFindsDamageWithExitCode3) {
  ASSERT_EQ(build({"--input", file("a.txt", std::string(5000, 'x')), "--tokenizer", "bytes"}), 0);
  {
    std::fstream stream(corpus_, std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    const std::size_t token = bytes.find(std::string("x\0x\0x\0", 6));
    ASSERT_NE(token, std::string::npos);
    stream.seekp(static_cast<std::streamoff>(token));
    stream.put('y');
  }
  EXPECT_EQ(run({"verify", corpus_}), 3);
  EXPECT_THAT(message_, HasSubstr("tokens 0 to 4999"));
  std::filesystem::resize_file(corpus_, 1000);
  EXPECT_EQ(run({"verify", corpus_}), 3);
  EXPECT_EQ(run({"inspect", corpus_}), 3);
  EXPECT_EQ(run({"verify", file("text.h5", "text")}), 3);
  EXPECT_EQ(run({"verify", directory_.path()}), 3);
  EXPECT_EQ(run({"verify", directory_ / "absent.h5"}), 5);
}

TEST_F(CorpusCommand, ReturnsTheExitCodeOfTheError) {
  const std::string text = file("a.txt", "some text");
  const std::vector<std::string> input{"--input", text};
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"built"}), 2);
  EXPECT_EQ(run({"build"}), 2);
  EXPECT_THAT(message_, AllOf(HasSubstr("--input must be given"), HasSubstr("--output must be given")));
  EXPECT_EQ(build({"--input", text, "--tokeniser", "bytes"}), 2);
  EXPECT_THAT(message_, HasSubstr("did you mean --tokenizer?"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "words"}), 2);
  EXPECT_EQ(build({"--input", text}), 2);
  EXPECT_THAT(message_, HasSubstr("--vocab-file"));
  EXPECT_EQ(build({"--input", text, "--tokenizer", "bytes", "--vocab-file", text}), 2);
  EXPECT_EQ(build({"--input", text, "--tokenizer", "bytes", "--workers", "0"}), 2);
  EXPECT_EQ(build({"--input", directory_ / "absent.txt", "--tokenizer", "bytes"}), 5);
  std::filesystem::create_directory(directory_ / "none");
  EXPECT_EQ(build({"--input", directory_ / "none", "--tokenizer", "bytes"}), 3);
  EXPECT_THAT(message_, HasSubstr("none has no files"));
  EXPECT_EQ(build({"--input", file("empty.txt", ""), "--tokenizer", "bytes"}), 3);
  EXPECT_THAT(message_, HasSubstr("holds no text"));
  EXPECT_EQ(build({"--input", file("a.jsonl", "{\"text\": 1}"), "--tokenizer", "bytes"}), 3);
  EXPECT_THAT(message_, HasSubstr("a.jsonl:1"));
  EXPECT_EQ(run({"build", "--input", text, "--tokenizer", "bytes", "--output", directory_ / "absent/c.h5"}), 5);
  EXPECT_FALSE(std::filesystem::exists(corpus_));
}

TEST_F(CorpusCommand, KeepsOrRefusesBytesThatAreNotUtf8) {
  const test::SmallBpe files(directory_.path());
  const std::string bytes = "caf\xE9 \xFF\xFE end";
  const std::vector<std::string> gpt2{"--input",      file("a.txt", bytes),  "--tokenizer",  "gpt2",
                                      "--vocab-file", files.vocabulary_path, "--merge-file", files.merges_path};
  EXPECT_EQ(build(gpt2), 3);
  EXPECT_THAT(message_, AllOf(HasSubstr("a.txt, byte 3"), HasSubstr("--invalid-utf8 keep")));
  auto keeping = gpt2;
  keeping.insert(keeping.end(), {"--invalid-utf8", "keep"});
  EXPECT_EQ(build(keeping), 0) << message_;
  EXPECT_EQ(decoded(), bytes);
  EXPECT_EQ(build({"--input", directory_ / "a.txt", "--tokenizer", "bytes"}), 0) << message_;
  EXPECT_EQ(decoded(), bytes);
}

TEST_F(CorpusCommand, ReadsTheGivenFormat) {
  const std::string lines = file("lines.txt", "{\"text\": \"good\"}\n");
  EXPECT_EQ(build({"--input", lines, "--tokenizer", "bytes", "--input-format", "json"}), 0) << message_;
  EXPECT_EQ(decoded(), "good");
  EXPECT_EQ(build({"--input", lines, "--tokenizer", "bytes", "--input-format", "text"}), 0) << message_;
  EXPECT_EQ(decoded(), "{\"text\": \"good\"}\n");
}

TEST_F(CorpusCommand, SkipsBadLinesOnRequest) {
  const std::string lines = file("a.jsonl", "bad\n{\"text\": \"good\"}\n");
  EXPECT_EQ(build({"--input", lines, "--tokenizer", "bytes", "--on-bad-line", "skip"}), 0) << message_;
  EXPECT_EQ(decoded(), "good");
  EXPECT_EQ(build({"--input", lines, "--tokenizer", "bytes", "--on-bad-line", "skip", "--max-bad-lines", "0"}), 3);
}

TEST_F(CorpusCommand, MergesSplitsSamplesExportsAndImports) {
  const std::string text = file("a.txt", "one two three");
  ASSERT_EQ(build({"--input", text, text, "--tokenizer", "bytes"}), 0) << message_;
  const std::string merged = directory_ / "merged.h5";
  EXPECT_EQ(run({"merge", corpus_, corpus_, "--output", merged}), 0) << message_;
  EXPECT_EQ(io::CorpusStore(merged).documents(), 4);
  EXPECT_EQ(run({"split", merged, "--split", "1,1", "--output-prefix", directory_ / "part"}), 0) << message_;
  EXPECT_EQ(io::CorpusStore(directory_ / "part_valid.h5").token_count(), 26);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "part_test.h5"));
  EXPECT_EQ(run({"sample", merged, "--share", "1", "--output", directory_ / "sample.h5"}), 0) << message_;
  EXPECT_EQ(run({"export", merged, "--output-prefix", directory_ / "m"}), 0) << message_;
  const std::string back = directory_ / "back.h5";
  for (const char* name : {"m", "m.bin", "m.idx"}) {
    EXPECT_EQ(run({"import", directory_ / name, "--tokenizer", "bytes", "--output", back}), 0) << message_;
    EXPECT_EQ(io::CorpusStore(back).info().content_digest, io::CorpusStore(merged).info().content_digest);
  }
  EXPECT_EQ(run({"import", directory_ / "m", "--tokenizer", "null", "--vocab-size", "300", "--output", back}), 0);
  EXPECT_EQ(run({"inspect", back}), 0);
  EXPECT_THAT(output_, AllOf(HasSubstr("null, 300 ids"), HasSubstr("document 0, 13 tokens: 111 110 101 32 116")));
  EXPECT_EQ(run({"import", directory_ / "m", "--tokenizer", "null", "--vocab-size", "300", "--eod-id", "258",
                 "--output", back}),
            0);
  EXPECT_EQ(data::tokenizer_from_payload("null", io::CorpusStore(back).info().tokenizer_payload)->end_of_document(),
            258);
}

TEST_F(CorpusCommand, RefusesToImportAnUnknownFormat) {
  const std::string text = file("a.bin", "no tokens");
  const std::string back = directory_ / "back.h5";
  EXPECT_EQ(run({"import", text, "--tokenizer", "bytes", "--output", back}), 3);
  EXPECT_THAT(message_, AllOf(HasSubstr("a.bin"), HasSubstr("no .idx")));
  EXPECT_EQ(run({"import", text, "--tokenizer", "null", "--output", back}), 2);
  EXPECT_EQ(run({"import", text, "--tokenizer", "bytes", "--vocab-size", "9", "--output", back}), 2);
  EXPECT_EQ(run({"import", "--tokenizer", "bytes", "--output", back}), 2);
  EXPECT_THAT(message_, HasSubstr("FILE... is missing"));
  EXPECT_EQ(run({"merge", directory_ / "absent.h5", "--output", back}), 5);
  EXPECT_EQ(run({"split", text, "--split", "1,x", "--output-prefix", back}), 2);
  EXPECT_FALSE(std::filesystem::exists(back));
}

}  // namespace
}  // namespace trireme::app
