#include "src/prepare/corpus_cleaner.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "io/compression/input_file.hpp"
#include "io/posix/folder_lock.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/error.hpp"
#include "src/data/text/language.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// A folder that all ranks see, and the cleaning of files in it by all ranks.
class CorpusCleaner : public testing::Test {
 protected:
  void SetUp() override {
    if (comm_.rank() == 0) directory_.emplace();
    folder_ = broadcast_text(comm_, directory_ ? directory_->path() : "", 0);
    options_.output = folder_ + "/out.jsonl";
    options_.report = folder_ + "/report.jsonl";
    options_.min_tokens = 0;
  }
  void TearDown() override { comm_.barrier(); }

  void write(const std::string& name, const std::string& bytes) {
    if (comm_.rank() == 0) std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    comm_.barrier();
    options_.inputs.push_back(folder_ + "/" + name);
  }

  CorpusCleanReport clean(const data::Tokenizer* tokenizer = nullptr) {
    return clean_corpus(options_, tokenizer, comm_, pool_, [](std::int64_t, std::int64_t) {});
  }

  std::string refusal(const data::Tokenizer* tokenizer = nullptr) {
    try {
      clean(tokenizer);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  static std::vector<std::string> lines(const std::string& path) {
    std::vector<std::string> result;
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line);) result.push_back(line);
    return result;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) result.push_back(entry.path().filename());
    return result;
  }

  Communicator& comm_ = test::world();
  ThreadPool pool_{1};
  std::optional<test::TemporaryDirectory> directory_;
  std::string folder_;
  CorpusCleanOptions options_;
};

TEST_F(CorpusCleaner, KeepsTheFirstOfEqualTextsAndTheLinesAsTheyAre) {
  write("a.jsonl",
        "{\"text\": \"one\",  \"id\": 7}\n\n{\"id\":\"b\",\"text\":\"two\\u0021\"}\r\n{\"text\":\"o\\u006ee\", "
        "\"id\": \"c\"}\n");
  write("b.txt", "two!");
  write("c.jsonl", "{\"text\":\"three\"}");
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
  write("a.txt", "abcde\nabcd\n\nabcd\nabcdef\nabcde\n");
  options_.text_lines = true;
  options_.min_tokens = 5;
  const auto tokenizer = data::make_byte_tokenizer();
  const CorpusCleanReport report = clean(tokenizer.get());
  EXPECT_THAT(lines(options_.output), ElementsAre(R"({"text":"abcde"})", R"({"text":"abcdef"})"));
  EXPECT_THAT(lines(options_.report),
              ElementsAre(R"({"document":1,"id":null,"reason":"short","tokens":4})",
                          R"({"document":2,"id":null,"reason":"short","tokens":4})",
                          HasSubstr(R"("document":4,"id":null,"reason":"exact duplicate","kept":0)")));
  EXPECT_EQ(report.short_documents, 2);
}

TEST_F(CorpusCleaner, FoldsCaseAndWhiteSpaceForTheComparisonAlone) {
  write("a.txt", "The trireme rows on\nthe  TRIREME rows\ton\nthe trireme sails on\n");
  options_.text_lines = true;
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

TEST_F(CorpusCleaner, ComposesLettersAndMarksWhereThatIsWanted) {
  const std::string same = "{\"text\":  \"\u00e9t\u00e9\"}";
  write("a.jsonl", same + "\n{\"id\": 1, \"text\": \"ne\u0301\", \"x\": 2}\n{\"text\": \"e\\u0301te\\u0301\"}\n");
  options_.jaccard = 1;
  EXPECT_EQ(clean().kept_documents, 3);
  options_.unicode = UnicodeForm::nfc;
  EXPECT_EQ(clean().kept_documents, 2);
  EXPECT_THAT(lines(options_.output), ElementsAre(same, "{\"id\":1,\"text\":\"n\u00e9\",\"x\":2}"));
}

TEST_F(CorpusCleaner, RepairsCharactersAndDropsOtherLanguagesWhereThatIsWanted) {
  if (!data::can_detect_languages()) GTEST_SKIP() << "built without CLD2";
  write("a.jsonl",
        R"({"id": 1, "text": "The cafÃ© is open every day, and everybody in the town knows the people there."})"
        "\n"
        R"({"id": 2, "text": "Das Haus ist jeden Tag offen, und alle in der Stadt kennen die Leute dort."})"
        "\n"
        R"({"id": 3, "text": "The café is open every day, and everybody in the town knows the people there."})"
        "\n");
  options_.jaccard = 1;
  options_.unicode = UnicodeForm::repaired;
  options_.languages = {"en"};
  const CorpusCleanReport report = clean();
  EXPECT_THAT(
      lines(options_.output),
      ElementsAre(
          R"({"id":1,"text":"The café is open every day, and everybody in the town knows the people there."})"));
  EXPECT_THAT(lines(options_.report),
              ElementsAre(R"({"document":1,"id":2,"reason":"language","language":"de","share":0.00})",
                          HasSubstr(R"("document":2,"id":3,"reason":"exact duplicate","kept":0)")));
  EXPECT_EQ(report.changed_documents, 1);
  EXPECT_EQ(report.foreign_documents, 1);
  comm_.barrier();  // before the files are made again
  options_.languages = {"fr", "xx"};
  EXPECT_THAT(refusal(), HasSubstr("'xx' is not the ISO 639 code"));
}

TEST_F(CorpusCleaner, SkipsAndCountsBadLinesWhereThatIsWanted) {
  std::string file;
  for (int i = 0; i < 40; ++i) {
    file += i % 5 == 2 ? "{\"text\": cut" + std::to_string(i) + "\n" : "{\"text\": \"" + std::to_string(i) + "\"}\n";
  }
  write("a.jsonl", file);
  options_.jaccard = 1;
  EXPECT_THAT(refusal(), HasSubstr("a.jsonl:3:"));
  options_.skip_bad_lines = true;
  const CorpusCleanReport report = clean();
  EXPECT_EQ(report.documents, 32);
  EXPECT_EQ(report.kept_documents, 32);
  EXPECT_EQ(report.bad_lines, 8);
  EXPECT_THAT(report.first_bad_lines,
              ElementsAre(HasSubstr("a.jsonl:3:"), HasSubstr("a.jsonl:8:"), HasSubstr("a.jsonl:13:"),
                          HasSubstr("a.jsonl:18:"), HasSubstr("a.jsonl:23:")));
  options_.max_bad_lines = 7;
  EXPECT_THAT(refusal(), HasSubstr("more than the 7 bad lines that --max-bad-lines allows"));
}

TEST_F(CorpusCleaner, WritesCompressedFilesThatUnpackToTheSame) {
  std::string file;
  for (int i = 0; i < 3000; ++i)
    file += json{{"id", i}, {"text", std::string(1000, 'a') + std::to_string(i)}}.dump() + "\n";
  write("a.jsonl", file);
  options_.jaccard = 1;
  for (const std::string suffix : {".gz", ".zst"}) {
    options_.output = folder_ + "/out.jsonl" + suffix;
    options_.report = folder_ + "/report.jsonl" + suffix;
    EXPECT_EQ(clean().kept_documents, 3000);
    comm_.barrier();
    const auto unpacked = [](const std::string& path) {
      std::string bytes(8 << 20, '\0');
      bytes.resize(open_input(path)->read(bytes.data(), bytes.size()));
      return bytes;
    };
    EXPECT_EQ(unpacked(options_.output), file);
    EXPECT_LT(std::filesystem::file_size(options_.output), file.size() / 10);
    EXPECT_NE(compression_of(options_.report), Compression::none);
    EXPECT_EQ(unpacked(options_.report), "");
    comm_.barrier();
  }
}

TEST_F(CorpusCleaner, ClearsAwayWhatAKilledJobLeftButNothingElse) {
  write("a.jsonl", "{\"text\": \"one\"}\n");
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
  if (comm_.rank() == 0) {  // as a process of this machine leaves it that is there no more
    {
      const FolderLock own(work + "/lock-of-mine", "out.jsonl");
      std::filesystem::copy(work + "/lock-of-mine", work + "/lock", std::filesystem::copy_options::overwrite_existing);
    }
    std::ifstream lock(work + "/lock");
    std::string content{std::istreambuf_iterator<char>(lock), {}};
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

/// 80 texts of 40 to 100 random words, and after each up to three more with a part of the words changed.
std::vector<std::string> planted_texts() {
  std::mt19937 random(11);
  const auto below = [&](unsigned n) { return random() % n; };
  const auto word = [&] {
    std::string result;
    for (unsigned i = 0; i < 3 + below(6); ++i) result += static_cast<char>('a' + below(26));
    return result;
  };
  std::vector<std::vector<std::string>> documents;
  for (int original = 0; original < 80; ++original) {
    std::vector<std::string> words(40 + below(60));
    for (std::string& w : words) w = word();
    documents.push_back(words);
    for (unsigned copies = below(4); copies > 0; --copies) {
      std::vector<std::string> changed = words;
      for (unsigned changes = below(static_cast<unsigned>(words.size()) / 4); changes > 0; --changes) {
        changed[below(static_cast<unsigned>(words.size()))] = word();
      }
      documents.push_back(changed);
    }
  }
  std::shuffle(documents.begin(), documents.end(), random);
  std::vector<std::string> texts;
  for (const auto& words : documents) {
    std::string& text = texts.emplace_back();
    for (const std::string& w : words) text += w + " ";
  }
  return texts;
}

using Shingles = std::vector<std::string>;  // sorted

Shingles shingles_of(const std::string& text) {
  Shingles result;
  for (std::size_t i = 0; i + 5 <= text.size(); ++i) result.push_back(text.substr(i, 5));
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

double true_similarity(const Shingles& a, const Shingles& b) {
  std::vector<std::string> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  const std::size_t common = both.size();
  return static_cast<double>(common) / static_cast<double>(a.size() + b.size() - common);
}

/// (document, first of its cluster) of all that are not the first, by comparing all pairs.
std::map<std::size_t, std::size_t> true_clusters(const std::vector<Shingles>& shingles) {
  std::vector<std::size_t> first(shingles.size());
  std::iota(first.begin(), first.end(), std::size_t{0});
  const auto root = [&](std::size_t i) {
    while (first[i] != i) i = first[i];
    return i;
  };
  for (std::size_t j = 0; j < shingles.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      if (true_similarity(shingles[i], shingles[j]) <= 0.7) continue;
      const std::size_t a = root(i);
      const std::size_t b = root(j);
      first[std::max(a, b)] = std::min(a, b);
    }
  }
  std::map<std::size_t, std::size_t> clusters;
  for (std::size_t i = 0; i < shingles.size(); ++i) {
    if (root(i) != i) clusters[i] = root(i);
  }
  return clusters;
}

// One answer for any number of ranks: that of all pairs compared one by one.
TEST_F(CorpusCleaner, FindsTheClustersThatComparingAllPairsFinds) {
  const std::vector<std::string> texts = planted_texts();
  std::string file;
  for (std::size_t i = 0; i < texts.size(); ++i) file += json{{"id", i}, {"text", texts[i]}}.dump() + "\n";
  write("a.jsonl", file);
  const CorpusCleanReport report = clean();
  if (comm_.rank() != 0) return;

  std::vector<Shingles> shingles;
  for (const std::string& text : texts) shingles.push_back(shingles_of(text));
  const auto expected = true_clusters(shingles);
  ASSERT_GT(expected.size(), 50u);
  std::map<std::size_t, std::size_t> found;
  for (const std::string& line : lines(options_.report)) {
    const json entry = json::parse(line);
    const std::size_t document = entry.at("document");
    found[document] = entry.at("kept");
    EXPECT_EQ(entry.at("id"), document);
    EXPECT_NEAR(entry.at("similarity"), true_similarity(shingles[document], shingles[found[document]]), 1e-6);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(report.exact_duplicates + report.near_duplicates, static_cast<std::int64_t>(expected.size()));
}

TEST_F(CorpusCleaner, RefusesWhatCannotBeReadOrWrittenAndLeavesNothing) {
  write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  options_.output = folder_ + "/a.jsonl";
  EXPECT_THAT(refusal(), HasSubstr("a.jsonl is both input and output"));
  options_.output = options_.report;
  EXPECT_THAT(refusal(), HasSubstr("is both output and report"));
  options_.output = folder_ + "/absent/out.jsonl";
  EXPECT_THAT(refusal(), HasSubstr("No such file or directory"));
  options_.output = folder_ + "/out.jsonl";
  const auto tokenizer = data::make_byte_tokenizer();
  options_.min_tokens = 99;
  EXPECT_THAT(refusal(tokenizer.get()), HasSubstr("nothing is left of 2 documents: 2 have fewer than 99 tokens"));
  options_.min_tokens = 0;
  std::string bad;
  for (int i = 0; i < 200; ++i) bad += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  write("b.jsonl", bad + "{\"text\": 7}\n");
  EXPECT_THAT(refusal(), HasSubstr("b.jsonl:201:"));  // found by one rank, thrown by all
  comm_.barrier();
  EXPECT_THAT(names(), UnorderedElementsAre("a.jsonl", "b.jsonl"));
}

TEST_F(CorpusCleaner, GivesTheReferencesAnswers) {
  const char* folder = std::getenv("TRIREME_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name a folder with cleaning/ and gpt2_bpe/";
  const std::string cleaning = std::string(folder) + "/cleaning/";
  std::ifstream truth_file(cleaning + "dedup_truth.json");
  const json truth = json::parse(truth_file);
  std::set<std::string> is_short;
  for (const auto& [id, tokens] : truth.at("gpt2_tokens").items()) {
    if (tokens < 128) is_short.insert(id);
  }
  ASSERT_EQ(is_short.size(), truth.at("n_dropped_below_128"));

  options_.inputs = {cleaning + "dedup_corpus.jsonl"};
  options_.min_tokens = 128;
  const auto tokenizer = data::make_gpt2_tokenizer(
      read_bpe_files(std::string(folder) + "/gpt2_bpe/encoder.json", std::string(folder) + "/gpt2_bpe/vocab.bpe"));
  const CorpusCleanReport report = clean(tokenizer.get());
  std::map<std::string, std::string> kept_for;
  for (const std::string& line : lines(options_.report)) {
    const json entry = json::parse(line);
    const std::string id = entry.at("id");
    if (entry.at("reason") == "short") {
      EXPECT_EQ(entry.at("tokens"), truth.at("gpt2_tokens").at(id));
      EXPECT_EQ(is_short.erase(id), 1u);
    } else {
      EXPECT_GT(entry.at("similarity"), 0.5);
      kept_for[id] = entry.at("kept_id");
    }
  }
  EXPECT_THAT(is_short, IsEmpty());
  int pairs = 0;
  int found = 0;
  for (const json& pair : truth.at("pairs")) {
    const std::string a = pair[0], b = pair[1];
    if (pair[2] <= 0.7 || truth["gpt2_tokens"][a] < 128 || truth["gpt2_tokens"][b] < 128) continue;
    ++pairs;
    const std::string first_of_a = kept_for.contains(a) ? kept_for[a] : a;
    const std::string first_of_b = kept_for.contains(b) ? kept_for[b] : b;
    found += first_of_a == first_of_b ? 1 : 0;
  }
  EXPECT_GT(pairs, 150);
  EXPECT_EQ(found, pairs);

  options_.min_tokens = 0;
  EXPECT_EQ(clean().kept_documents, truth.at("docs_left_if_one_kept_per_cluster"));
  EXPECT_EQ(report.documents, truth.at("n_docs"));
}

}  // namespace
}  // namespace trireme::io
