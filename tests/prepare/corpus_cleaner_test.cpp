#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "io/compression/compression.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/data/text/language.hpp"
#include "src/prepare/repeated_text.hpp"
#include "tests/prepare/cleaning_fixture.hpp"

namespace trireme::prepare {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST_F(CorpusCleaner, KeepsTheFirstOfEqualTextsAndTheLinesAsTheyAre) {
  input("a.jsonl",
        "{\"text\": \"one\",  \"id\": 7}\n\n{\"id\":\"b\",\"text\":\"two\\u0021\"}\r\n{\"text\":\"o\\u006ee\", "
        "\"id\": \"c\"}\n");
  input("b.txt", "two!");
  input("c.jsonl", "{\"text\":\"three\"}");
  options_.jaccard = 1;
  const CorpusCleanReport report = clean();
  EXPECT_THAT(lines(options_.output), ElementsAre("{\"text\": \"one\",  \"id\": 7}",
                                                  "{\"id\":\"b\",\"text\":\"two\\u0021\"}", "{\"text\":\"three\"}"));
  EXPECT_THAT(
      lines(options_.report),
      ElementsAre(
          R"({"document":2,"id":"c","reason":"exact duplicate","kept":0,"kept_id":7,"similarity":1.000000})",
          R"({"document":3,"id":null,"reason":"exact duplicate","kept":1,"kept_id":"b","similarity":1.000000})"));
  EXPECT_EQ(report.documents, 5);
  EXPECT_EQ(report.kept_documents, 3);
  EXPECT_EQ(report.exact_duplicates, 2);
  comm_.barrier();
  EXPECT_THAT(names(), UnorderedElementsAre("a.jsonl", "b.txt", "c.jsonl", "out.jsonl", "report.jsonl"));
}

TEST_F(CorpusCleaner, DropsDocumentsOfFewTokensBeforeItLooksForDuplicates) {
  input("a.txt", "abcde\nabcd\n\nabcd\nabcdef\nabcde\n");
  options_.reader.format = TextFormat::lines;
  options_.filters.min_tokens = 5;
  options_.filters.tokenizer = data::make_byte_tokenizer();
  const CorpusCleanReport report = clean();
  EXPECT_THAT(lines(options_.output), ElementsAre(R"({"text":"abcde"})", R"({"text":"abcdef"})"));
  EXPECT_THAT(lines(options_.report),
              ElementsAre(R"({"document":1,"id":null,"reason":"short","tokens":4})",
                          R"({"document":2,"id":null,"reason":"short","tokens":4})",
                          HasSubstr(R"("document":4,"id":null,"reason":"exact duplicate","kept":0)")));
  EXPECT_THAT(report.filtered, ElementsAre(Pair("short", 2)));
}

TEST_F(CorpusCleaner, FoldsCaseAndWhiteSpaceForTheComparisonAlone) {
  input("a.txt", "The trireme rows on\nthe  TRIREME rows\ton\nthe trireme sails on\n");
  options_.reader.format = TextFormat::lines;
  options_.jaccard = 0.9;
  EXPECT_EQ(clean().kept_documents, 3);
  options_.shingles.folding = data::ShingleFolding::case_and_white_space;
  EXPECT_EQ(clean().kept_documents, 2);
  EXPECT_EQ(lines(options_.output).front(), R"({"text":"The trireme rows on"})");
  options_.shingles.unit = data::ShingleUnit::words;
  options_.shingles.size = 1;
  options_.minhash = {.bands = 200, .rows = 1};
  options_.jaccard = 0.5;  // three words of five in common
  EXPECT_EQ(clean().kept_documents, 1);
}

TEST_F(CorpusCleaner, ComposesLettersAndMarksOnRequest) {
  const std::string same = "{\"text\":  \"\u00e9t\u00e9\"}";
  input("a.jsonl", same + "\n{\"id\": 1, \"text\": \"ne\u0301\", \"x\": 2}\n{\"text\": \"e\\u0301te\\u0301\"}\n");
  options_.jaccard = 1;
  EXPECT_EQ(clean().kept_documents, 3);
  options_.unicode = UnicodeForm::nfc;
  EXPECT_EQ(clean().kept_documents, 2);
  EXPECT_THAT(lines(options_.output), ElementsAre(same, "{\"id\":1,\"text\":\"n\u00e9\",\"x\":2}"));
}

TEST_F(CorpusCleaner, RepairsCharactersAndDropsOtherLanguagesOnRequest) {
  if (!data::can_detect_languages()) GTEST_SKIP() << "built without CLD2";
  input("a.jsonl",
        R"({"id": 1, "text": "The cafÃ© is open every day, and everybody in the town knows the people there."})"
        "\n"
        R"({"id": 2, "text": "Das Haus ist jeden Tag offen, und alle in der Stadt kennen die Leute dort."})"
        "\n"
        R"({"id": 3, "text": "The café is open every day, and everybody in the town knows the people there."})"
        "\n");
  options_.jaccard = 1;
  options_.unicode = UnicodeForm::repaired;
  options_.filters.languages = std::make_shared<data::LanguageDetector>(std::vector<std::string>{"en"});
  const CorpusCleanReport report = clean();
  EXPECT_THAT(
      lines(options_.output),
      ElementsAre(
          R"({"id":1,"text":"The café is open every day, and everybody in the town knows the people there."})"));
  EXPECT_THAT(lines(options_.report),
              ElementsAre(R"({"document":1,"id":2,"reason":"language","language":"de","share":0.00})",
                          HasSubstr(R"("document":2,"id":3,"reason":"exact duplicate","kept":0)")));
  EXPECT_EQ(report.changed_documents, 1);
  EXPECT_THAT(report.filtered, ElementsAre(Pair("language", 1)));
  EXPECT_THAT(test::message_of([] {
                data::LanguageDetector({"fr", "xx"});
              }),
              HasSubstr("'xx' is not the ISO 639 code"));
}

TEST_F(CorpusCleaner, AppliesTheFiltersInTheirOrderAndWritesWhatTheyChange) {
  input("a.jsonl", R"({"id":0,"url":"https://spam.example/a","text":"Home\nOne two three.","n":1})"
                   "\n"
                   R"({"id":1,"url":"https://good.example/b","text":"Home\nThree words here.[2]","n":2})"
                   "\n"
                   R"({"id":2,"url":"https://good.example/c","text":"A {brace} here."})"
                   "\n"
                   R"({"id":3,"url":null,"text":"This Bad Phrase is here."})"
                   "\n");
  options_.jaccard = 1;
  options_.filters.blocked_urls = std::make_shared<data::UrlBlocklist>("spam.example\n");
  options_.filters.blocked_words = std::make_shared<data::WordBlocklist>("bad phrase\n");
  const std::vector<std::string_view> names{"c4"}, bounds{"c4.min-sentences=1"};
  options_.filters.quality = std::make_shared<data::QualityFilters>(names, bounds);
  const CorpusCleanReport report = clean();
  EXPECT_EQ(report.documents_with_url, 3);
  EXPECT_THAT(lines(options_.output),
              ElementsAre(R"({"id":1,"url":"https://good.example/b","text":"Three words here.","n":2})"));
  EXPECT_THAT(lines(options_.report), ElementsAre(R"({"document":0,"id":0,"reason":"blocked url"})",
                                                  R"({"document":2,"id":2,"reason":"c4.curly-bracket","value":1})",
                                                  R"({"document":3,"id":3,"reason":"blocked word"})"));
  EXPECT_THAT(report.filtered,
              ElementsAre(Pair("blocked url", 1), Pair("blocked word", 1), Pair("c4.curly-bracket", 1)));
  comm_.barrier();  // before the files are replaced
  options_.url_key = "address";
  EXPECT_THAT(refusal(), HasSubstr("none of 4 documents has an address under the key 'address'"));
  comm_.barrier();
  options_.url_key = "n";
  EXPECT_THAT(refusal(), HasSubstr("the value of 'n' is a number, not a string"));
}

// e2e/clean_test.sh packs with Zstandard.
TEST_F(CorpusCleaner, WritesCompressedFilesThatUnpackToTheSame) {
  std::string file;
  for (int i = 0; i < 3000; ++i)
    file += json{{"id", i}, {"text", std::string(1000, 'a') + std::to_string(i)}}.dump() + "\n";
  input("a.jsonl", file);
  options_.jaccard = 1;
  options_.output += ".gz";
  EXPECT_EQ(clean().kept_documents, 3000);
  comm_.barrier();
  std::string unpacked(8 << 20, '\0');
  unpacked.resize(io::open_input(options_.output)->read(unpacked.data(), unpacked.size()));
  EXPECT_EQ(unpacked, file);
  EXPECT_LT(std::filesystem::file_size(options_.output), file.size() / 10);
}

TEST_F(CorpusCleaner, RemovesLeftoversOfAKilledJobAndNothingElse) {
  input("a.jsonl", "{\"text\": \"one\"}\n");
  const std::string work = options_.output + ".partial";
  if (comm_.rank() == 0) {
    std::filesystem::create_directory(work);
    std::ofstream(work + "/somebody's") << "notes";
  }
  comm_.barrier();
  EXPECT_THAT(refusal(), HasSubstr("holds files that this program did not leave there, somebody's first"));
  comm_.barrier();
  if (comm_.rank() == 0) {
    EXPECT_TRUE(std::filesystem::exists(work + "/somebody's"));
    std::ofstream(work + "/lock") << "host nowhere\npid 1\nboot none\n";
  }
  comm_.barrier();
  EXPECT_THAT(refusal(), HasSubstr("in use by another job, process 1 on host nowhere"));
  comm_.barrier();
  if (comm_.rank() == 0) {  // the lock of a dead process of this machine
    {
      const io::FolderLock own(work + "/lock-of-mine", "out.jsonl");
      std::filesystem::copy(work + "/lock-of-mine", work + "/lock", std::filesystem::copy_options::overwrite_existing);
    }
    std::string content = test::content_of(work + "/lock");
    content.replace(content.find("started "), 8, "started 1");
    std::ofstream(work + "/lock") << content;
    std::ofstream(work + "/documents-0") << "half";
    std::ofstream(work + "/whole") << "half";
  }
  comm_.barrier();
  EXPECT_EQ(clean().kept_documents, 1);
  comm_.barrier();
  EXPECT_THAT(names(), UnorderedElementsAre("a.jsonl", "out.jsonl", "report.jsonl"));
}

TEST_F(CorpusCleaner, RemovesLinesThatAnEarlierDocumentOfTheOutputHas) {
  input("a.jsonl", R"({"id":0,"text":"short\nHome page 1"})"
                   "\n"
                   R"({"id":1,"text":"Home page 2!\nOne.","n":1})"
                   "\n"
                   R"({"id":2,"text":"home PAGE 33\nTwo.\n\nTwo.","n":2})"
                   "\n"
                   R"({"id":3, "text":"Three."})"
                   "\n"
                   R"({"id":4,"text":"one\nHome: page 4"})"
                   "\n"
                   R"({"id":5,"text":"Home page 2!\nOne.","n":1})"
                   "\n");
  options_.jaccard = 1;
  options_.filters.blocked_words = std::make_shared<data::WordBlocklist>("short\n");
  options_.repeated_text = {{data::TextPart::lines, 1}, 0, 0};
  const CorpusCleanReport report = clean();
  EXPECT_THAT(lines(options_.output), ElementsAre(R"({"id":1,"text":"Home page 2!\nOne.","n":1})",
                                                  R"({"id":2,"text":"Two.\n","n":2})", R"({"id":3, "text":"Three."})"));
  EXPECT_THAT(lines(options_.report),
              ElementsAre(R"({"document":0,"id":0,"reason":"blocked word"})",
                          R"({"document":2,"id":2,"reason":"repeated text","part":0,"kept":1})",
                          R"({"document":2,"id":2,"reason":"repeated text","part":3,"kept":2})",
                          R"({"document":4,"id":4,"reason":"repeated text","part":0,"kept":1})",
                          R"({"document":4,"id":4,"reason":"repeated text","part":1,"kept":1})",
                          R"({"document":4,"id":4,"reason":"short rest","words":0,"sentences":0})",
                          HasSubstr(R"("document":5,"id":5,"reason":"exact duplicate","kept":1)")));
  EXPECT_EQ(report.repeated_spans, 4);
  EXPECT_EQ(report.shortened_documents, 1);
  EXPECT_THAT(report.filtered, ElementsAre(Pair("blocked word", 1), Pair("short rest", 1)));
}

// A few hashes at a time, in many lists, of spans of which one is more frequent than a list is long.
TEST_F(CorpusCleaner, FindsRepeatedTextInAnyNumberOfLists) {
  if (comm_.rank() == 0) std::filesystem::create_directory(folder_ + "/work");
  comm_.barrier();
  constexpr std::int64_t documents = 12;  // documents of every rank
  const Files files = io::prepare_files();
  for (const std::int64_t at_once : {1, 20, 100000}) {
    RepeatedText repeated(files, comm_, folder_ + "/work");
    const std::int64_t begin = documents * comm_.rank();
    const auto span_of = [](std::int64_t document, std::int64_t part) {
      return part % 4 == 0   ? -1
             : part % 4 == 1 ? 0
             : part % 4 == 2 ? (document * 7 + part) % 50
                             : 1000 * document + part;
    };
    const auto hash_of = [](std::int64_t span) { return span < 0 ? Hash128{} : hash128(&span, sizeof span); };
    for (std::int64_t document = begin; document < begin + documents; ++document) {
      std::vector<Hash128> spans;
      for (std::int64_t part = 0; part < 400; ++part) spans.push_back(hash_of(span_of(document, part)));
      repeated.append(spans);
    }
    repeated.find([](std::int64_t document) { return document % 5 != 2; }, at_once);
    std::map<std::int64_t, std::int64_t> firsts;
    for (std::int64_t document = 0; document < documents * comm_.size(); ++document) {
      if (document % 5 == 2) continue;
      std::vector<std::pair<std::int64_t, std::int64_t>> expected, found;
      for (std::int64_t part = 0; part < 400; ++part) {
        const std::int64_t span = span_of(document, part);
        if (span < 0 || firsts.try_emplace(span, document).second) continue;
        expected.emplace_back(part, firsts[span]);
      }
      if (document < begin || document >= begin + documents) continue;
      for (const RepeatedSpan& span : repeated.of(document)) found.emplace_back(span.first_part, span.kept);
      EXPECT_EQ(found, expected) << document;
    }
    comm_.barrier();
    if (comm_.rank() == 0) {
      for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/work")) std::filesystem::remove(entry);
    }
    comm_.barrier();
  }
}

TEST_F(CorpusCleaner, RefusesAnOutputThatIsTheReport) {
  options_.output = options_.report;
  EXPECT_THAT(refusal(), HasSubstr("is both output and report"));
}

}  // namespace
}  // namespace trireme::prepare
