#include "src/prepare/corpus_overlap.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "tests/prepare/cleaning_fixture.hpp"

namespace trireme::prepare {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

class CorpusOverlap : public SharedFolder {
 protected:
  CorpusOverlap() {
    options_.n = 3;
    options_.test_reader.format = TextFormat::lines;
  }

  CorpusOverlapReport overlap() {
    return corpus_overlap(io::prepare_files(), options_, comm_, pool_, [](std::int64_t, std::int64_t) {});
  }

  CorpusOverlapOptions options_;
};

// The test has four distinct 3-grams. "a b c" and "c d e" occur in the corpus, "b c d" only across two documents.
TEST_F(CorpusOverlap, CountsDifferentNgramsOfTheTestThatOccurInADocument) {
  options_.tests = {write("test.txt", "A b  c d e\nb c d e f\nA B C\nb c\n"), write("none.txt", "x y z\n")};
  options_.inputs = {
      write("a.jsonl", "{\"text\":\"x a b c\"}\n{\"text\":\"d e c d e b c\"}\n{\"text\":\"d a b c\"}\n")};
  const CorpusOverlapReport report = overlap();
  EXPECT_EQ(report.tests[0].documents, 4);
  EXPECT_EQ(report.tests[0].ngrams, 4);
  EXPECT_EQ(report.tests[0].overlapping, 2);
  EXPECT_EQ(report.tests[1].ngrams, 1);
  EXPECT_EQ(report.tests[1].overlapping, 0);
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.affected_documents, 3);
  EXPECT_EQ(io::overlap_line("t\"", 3, report.tests[0]),
            R"({"test":"t\"","ngram":3,"documents":4,"unique_ngrams":4,"overlapping":2,"percent":50.0})");
}

TEST_F(CorpusOverlap, WritesTheCorpusWithoutThePassages) {
  options_.tests = {write("test.txt", "seen in test.\n")};
  options_.inputs = {write("a.jsonl",
                           "{\"id\": 1, \"text\": \"Nothing here.\", \"x\": 1.50}\n"
                           "{\"id\": 2, \"text\": \"Before. Seen in  TEST. After it.\"}\n"
                           "{\"id\": 3, \"text\": \"Was seen in test.\"}\n"),
                     write("b.txt", "Was seen in test. Plain.")};
  options_.output = folder_ + "/out.jsonl";
  options_.removal = {.margin = 0, .min_piece = 1, .max_cuts = 10};
  const CorpusOverlapReport report = overlap();
  EXPECT_THAT(lines(options_.output),
              ElementsAre("{\"id\": 1, \"text\": \"Nothing here.\", \"x\": 1.50}", R"({"id":2,"text":"Before."})",
                          R"({"id":2,"text":"After it."})", R"({"text":"Plain."})"));
  EXPECT_EQ(report.written_documents, 4);
  EXPECT_EQ(report.removed_documents, 1);
  EXPECT_EQ(report.affected_documents, 3);
}

TEST_F(CorpusOverlap, OverwritesNeitherTheCorpusNorATest) {
  options_.inputs = {write("a.txt", "one two three")};
  options_.tests = {write("test.txt", "one two three\n")};
  for (const std::string& input : {options_.inputs[0], options_.tests[0]}) {
    options_.output = input;
    EXPECT_THAT(test::message_of([&] { overlap(); }), ::testing::HasSubstr("is both input and output"));
  }
}

TEST_F(CorpusOverlap, MatchesTheReference) {
  const char* folder = std::getenv("TRIREME_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name a folder with cleaning/, prose/, wikitext/";
  const std::string data = std::string(folder) + "/";
  std::ifstream truth_file(data + "cleaning/ngram8_overlap_truth.json");
  const json truth = json::parse(truth_file);
  options_.n = 8;
  const std::vector<std::pair<std::string, TextFormat>> tests = {
      {data + "wikitext/wiki.test.raw", TextFormat::lines}, {data + "lambada/lambada_test.jsonl", TextFormat::by_name}};
  std::vector<std::string> prose;
  for (const char* book : {"bleak_house", "don_quixote", "great_expectations", "middlemarch", "war_and_peace"}) {
    prose.push_back(data + "prose/" + book + ".txt");
  }
  const std::vector<std::pair<std::string, std::vector<std::string>>> corpora = {
      {"wikitext/wiki.valid.tokens (per line)", {data + "wikitext/wiki.valid.tokens"}},
      {"prose/*.txt (each file one document)", prose},
      {"prose/state_union.jsonl (per text)", {data + "prose/state_union.jsonl"}}};
  int compared = 0;
  for (const auto& [name, files] : corpora) {
    options_.inputs = files;
    options_.reader.format = name.ends_with("(per line)") ? TextFormat::lines : TextFormat::by_name;
    for (const auto& [path, format] : tests) {
      options_.tests = {path};
      options_.test_reader.format = format;
      const CorpusOverlapReport report = overlap();
      const TestOverlap& found = report.tests.front();
      for (const json& expected : truth.at("results")) {
        const bool is_of_lines = expected.at("test").get<std::string>().starts_with("wikitext");
        if (expected.at("train") != name || is_of_lines != (format == TextFormat::lines)) continue;
        EXPECT_EQ(found.ngrams, expected.at("unique_test_8grams")) << expected;
        EXPECT_EQ(found.overlapping, expected.at("overlapping")) << expected;
        EXPECT_DOUBLE_EQ(json::parse(io::overlap_line("", 8, found)).at("percent"), expected.at("percent"));
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace
}  // namespace trireme::prepare
