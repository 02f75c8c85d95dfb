#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "io/tokenizer/tokenizer_files.hpp"
#include "tests/prepare/cleaning_fixture.hpp"

namespace trireme::prepare {
namespace {

using nlohmann::json;
using ::testing::IsEmpty;

/// 80 texts of 40 to 100 random words, and up to three variants of each with some words changed, shuffled.
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

/// Returns (document, first of its cluster) for every non-first document, from comparisons of all pairs.
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

// For any number of ranks the result equals that of comparing all pairs.
TEST_F(CorpusCleaner, FindsTheClustersThatComparingAllPairsFinds) {
  const std::vector<std::string> texts = planted_texts();
  std::string file;
  for (std::size_t i = 0; i < texts.size(); ++i) file += json{{"id", i}, {"text", texts[i]}}.dump() + "\n";
  input("a.jsonl", file);
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

// One comparison tells that a document belongs to its template, whichever rank holds the others.
TEST_F(CorpusCleaner, ComparesDocumentsOfATemplateOnceOnAnyNumberOfRanks) {
  std::mt19937 random(3);
  constexpr int documents = 400, words = 80;
  std::string file;
  for (int i = 0; i < documents; ++i) {
    std::string text;
    for (int w = 0; w < words; ++w) text += fmt::format("word{} ", random() % 40 == 0 ? random() % 9000 : w);
    file += json{{"id", i}, {"text", text}}.dump() + "\n";
  }
  input("a.jsonl", file);
  const CorpusCleanReport report = clean();
  EXPECT_GT(report.near_duplicates, documents * 4 / 5);
  EXPECT_LT(report.compared_pairs, documents * 3 / 2);
}

TEST_F(CorpusCleaner, MatchesTheReference) {
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
  options_.filters.min_tokens = 128;
  options_.filters.tokenizer = data::make_gpt2_tokenizer(
      io::read_bpe_files(std::string(folder) + "/gpt2_bpe/encoder.json", std::string(folder) + "/gpt2_bpe/vocab.bpe"));
  const CorpusCleanReport report = clean();
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

  options_.filters.min_tokens = 0;
  EXPECT_EQ(clean().kept_documents, truth.at("docs_left_if_one_kept_per_cluster"));
  EXPECT_EQ(report.documents, truth.at("n_docs"));
}

}  // namespace
}  // namespace trireme::prepare
