#if __has_include(<fasttext/fasttext.h>)
#include <fasttext/fasttext.h>
#endif
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/data/quality/blocklist.hpp"
#include "src/data/quality/classifier.hpp"
#include "src/data/quality/quality_rules.hpp"
#include "src/data/quality/separated_words.hpp"
#include "src/data/quality/title_list.hpp"
#include "src/data/text/joined_lines.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string_view> separated(std::string_view text) {
  std::vector<std::string_view> words;
  separated_words(text, words);
  return words;
}

std::string broken_rule(std::string text, std::vector<std::string_view> filters,
                        const std::vector<std::string_view>& bounds = {}) {
  const auto broken = QualityFilters(filters, bounds).apply(text);
  return broken ? std::string(broken->rule) : "";
}

TEST(SeparatedWords, SplitSignsAndEndingsButNotAddresses) {
  EXPECT_THAT(separated("\"Don't,\" (he's said)... at well-known U.S. ports."),
              ElementsAre("\"", "Do", "n't", ",", "\"", "(", "he", "'s", "said", ")", "...", "at", "well", "-", "known",
                          "U.S.", "ports", "."));
  EXPECT_THAT(separated("Mr. J. Smith's 3.5 C++ one--and https://a.b/c-d?e=f x/y a,b end.Next"),
              ElementsAre("Mr.", "J.", "Smith", "'s", "3.5", "C++", "one", "--", "and", "https://a.b/c-d?e=f", "x", "/",
                          "y", "a", ",", "b", "end", ".", "Next"));
  EXPECT_THAT(separated("\u4f60\u597d\u3002 \u2014 \xff."),
              ElementsAre("\u4f60\u597d", "\u3002", "\u2014", "\xff", "."));
  EXPECT_TRUE(separated(" \n\u00a0").empty());
}

// tests/fixtures/quality/make.py: texts judged by datatrove.
TEST(QualityFilters, DecideAsDatatroveDoes) {
  const std::map<std::string, std::string> names{
      {"gopher_short_doc", "gopher-quality.min-words"},
      {"gopher_too_many_hashes", "gopher-quality.max-hashes"},
      {"gopher_too_many_ellipsis", "gopher-quality.max-ellipses"},
      {"gopher_too_many_bullets", "gopher-quality.max-bullet-lines"},
      {"gopher_too_many_end_ellipsis", "gopher-quality.max-ellipsis-lines"},
      {"gopher_below_alpha_threshold", "gopher-quality.min-alphabetic-words"},
      {"gopher_enough_stop_words", "gopher-quality.min-stop-words"},
      {"dup_para_frac", "gopher-repetition.paragraphs"},
      {"dup_para_char_frac", "gopher-repetition.paragraph-characters"},
      {"dup_line_frac", "gopher-repetition.lines"},
      {"dup_line_char_frac", "gopher-repetition.line-characters"},
      {"lorem_ipsum", "c4.lorem-ipsum"},
      {"curly_bracket", "c4.curly-bracket"},
      {"too_few_sentences", "c4.min-sentences"},
      {"< 3 paragraphs", "c4-paragraphs.min-paragraphs"},
      {"line_punct_ratio", "fineweb.min-punctuated-lines"},
      {"short_line_ratio", "fineweb.max-short-lines"},
      {"char_dup_ratio", "fineweb.line-characters"},
      {"list_ratio", "fineweb.max-newlines"}};
  const auto name_of = [&](std::string reason) {
    if (names.contains(reason)) return names.at(reason);
    // "top_3_gram", "duplicated_5_n_grams"
    const std::size_t digit = reason.find_first_of("0123456789");
    if (digit == std::string::npos) return reason;
    const std::string size = reason.substr(digit, reason.find('_', digit) - digit);
    return fmt::format("gopher-repetition.{}{}-grams", reason.starts_with("top") ? "top-" : "", size);
  };
  std::ifstream file(TRIREME_FIXTURES "/quality/documents.json");
  const auto documents = nlohmann::json::parse(file);
  ASSERT_EQ(documents.size(), 60u);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    for (const std::string_view filter : QualityFilters::names()) {
      std::string text = documents[i].at("text");
      const auto broken = QualityFilters({&filter, 1}, {}).apply(text);
      EXPECT_EQ(broken ? std::string(broken->rule) : "", name_of(documents[i].at(std::string(filter))))
          << filter << " of document " << i << ": " << (broken ? broken->value : 0);
      if (filter == "c4" && !broken) {
        EXPECT_EQ(text, documents[i].at("c4 text").get<std::string>());
      }
    }
  }
}

TEST(QualityFilters, AreAppliedInTheOrderGivenWithOtherBounds) {
  const std::string text = "The hull of the ship.\nThe hull of the ship.\nHome\n";
  EXPECT_EQ(broken_rule(text, {"gopher-quality", "fineweb"}), "gopher-quality.min-words");
  EXPECT_EQ(broken_rule(text, {"fineweb", "gopher-quality"}), "fineweb.max-short-lines");
  EXPECT_EQ(broken_rule(text, {"gopher-quality"}, {"gopher-quality.min-words=11"}), "");
  EXPECT_EQ(broken_rule(text, {"gopher-quality"}, {"gopher-quality.min-words=12"}), "gopher-quality.min-words");
  EXPECT_EQ(
      broken_rule("", {"gopher-repetition", "c4", "fineweb"}, {"c4.min-sentences=0", "fineweb.min-punctuated-lines=0"}),
      "");
}

TEST(QualityFilters, RefuseUnknownNamesAndBounds) {
  const auto refusal = [](std::vector<std::string_view> filters, const std::vector<std::string_view>& bounds) {
    return test::message_of([&] { QualityFilters(filters, bounds); });
  };
  EXPECT_THAT(refusal({"gopher"}, {}), HasSubstr("there is no quality filter 'gopher': give some of gopher-quality, "));
  EXPECT_THAT(refusal({"c4"}, {"c4.words=3"}),
              HasSubstr("c4 has c4.min-sentences, c4.min-line-words, c4.max-word-length"));
  EXPECT_THAT(refusal({"c4"}, {"words=3"}), HasSubstr("names begin with gopher-quality, "));
  EXPECT_THAT(refusal({"c4"}, {"fineweb.short-line=3"}), HasSubstr("needs the quality filter fineweb"));
  EXPECT_THAT(refusal({"c4"}, {"c4.min-sentences=few"}), HasSubstr("give c4.min-sentences=NUMBER"));
}

TEST(UrlBlocklist, HasDomainsWithTheirSubdomainsAndAddresses) {
  const UrlBlocklist list("# comment\nspam.example\n\nhttp://www.good.example/bad/page\n");
  EXPECT_TRUE(list.contains("https://spam.example"));
  EXPECT_TRUE(list.contains("HTTP://user@Shop.SPAM.example:8080/x?y"));
  EXPECT_FALSE(list.contains("https://notspam.example/"));
  EXPECT_FALSE(list.contains("https://example/spam.example"));
  EXPECT_TRUE(list.contains("https://good.example/bad/page"));
  EXPECT_FALSE(list.contains("https://good.example/bad/page/2"));
  EXPECT_FALSE(list.contains("https://good.example/"));
  EXPECT_FALSE(list.contains(""));
  EXPECT_TRUE(UrlBlocklist("http://spam.example/").contains("https://shop.spam.example/x"));
  EXPECT_TRUE(UrlBlocklist("[::1]").contains("http://[::1]:80/x"));
  EXPECT_FALSE(UrlBlocklist("[::1]").contains("http://[::2]/x"));
}

TEST(TitleList, HasTheTitlesOfWikiTextsArticles) {
  const TitleList list(
      " \n = Ise @-@ class battleship = \n \n It was 1 @,@ 000 m \n = 1 henry and capacitance C = \n long . \n \n"
      " = = Design = = \n \n = A = \n \n = Kirby 's ( 1999 ) = \n \n");
  EXPECT_EQ(list.size(), 3);
  for (const char* title : {"Ise-class battleship", "A", "Kirby's (1999)", "Kirby's_(1999)"}) {
    EXPECT_TRUE(list.contains(title)) << title;
  }
  for (const char* title : {"ise-class battleship", "Design", "1 henry and capacitance C", ""}) {
    EXPECT_FALSE(list.contains(title)) << title;
  }
  EXPECT_THAT(test::message_of<DataError>([] { TitleList("\n = Robert <unk> = \n\n"); }),
              HasSubstr("\"Robert <unk>\" has unknown words"));
  const TitleList lines("Du Fu\n\n= B\nCafe\u0301\n");
  EXPECT_EQ(lines.size(), 3);
  EXPECT_TRUE(lines.contains("Du Fu"));
  EXPECT_TRUE(lines.contains("= B"));
  EXPECT_TRUE(lines.contains("Caf\u00e9"));
}

TEST(JoinedLines, AreThoseOfPythonsExpression) {
  // Python: re.sub(r"  +|\b\n+ |\b\n+", " ", text)
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"a\nb", "a b"},
                                                       {"a\n\n\nb", "a b"},
                                                       {"a\n b", "a b"},
                                                       {"a\n  b", "a  b"},
                                                       {"a\n   b", "a  b"},
                                                       {"a.\nb", "a.\nb"},
                                                       {"a \nb", "a \nb"},
                                                       {"a  \nb", "a \nb"},
                                                       {"\na", "\na"},
                                                       {"\u00e9\nb_\n9\n", "\u00e9 b_ 9 "},
                                                       {"a\n\r\nb", "a \r\nb"},
                                                       {"\xff\nb", "\xff\nb"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(joined_lines(text), expected) << text;
}

TEST(WordBlocklist, FindsPhrasesThatAreNotPartsOfWords) {
  const WordBlocklist list("Foul\ntwo words\n\u00e4rger\n$x\n");
  EXPECT_EQ(list.find("A FOUL word"), "foul");
  EXPECT_EQ(list.find("foulness, befoul, foul_, 1foul"), "");
  EXPECT_EQ(list.find("some (two words)"), "two words");
  EXPECT_EQ(list.find("\u00c4RGER"), "\u00e4rger");
  EXPECT_EQ(list.find("ver\u00e4rger"), "");
  EXPECT_EQ(list.find("at $x."), "$x");
  EXPECT_EQ(list.find("at$x."), "");
  EXPECT_EQ(list.find(""), "");
}

#if __has_include(<fasttext/fasttext.h>)
TEST(TextClassifier, GivesTheExcessOfLabelsOfATrainedModel) {
  if (!can_classify_texts()) GTEST_SKIP() << "built without fastText";
  const test::TemporaryDirectory folder;
  {
    std::ofstream file(folder.path() + "/train.txt");
    for (int i = 0; i < 50; ++i) file << "__label__sea the ship sails the sea\n__label__land the cart rolls on land\n";
  }
  fasttext::Args arguments;
  arguments.input = folder.path() + "/train.txt";
  arguments.model = fasttext::model_name::sup;
  arguments.loss = fasttext::loss_name::softmax;
  arguments.dim = 8;
  arguments.minCount = 1;
  arguments.lr = 0.5;
  arguments.thread = 1;
  arguments.minn = arguments.maxn = arguments.bucket = 0;  // a small model: no n-grams
  arguments.verbose = 0;
  fasttext::FastText trained;
  trained.train(arguments);
  trained.saveModel(folder.path() + "/model.bin");

  const std::vector<ClassLabel> sea{{"sea", 0.5}}, both{{"sea", 1}, {"land", 0.25}};
  const TextClassifier classifier(folder.path() + "/model.bin", sea);
  EXPECT_GT(classifier.excess("the ship sails\nthe sea"), 0.3);
  EXPECT_LT(classifier.excess("the cart rolls on land"), -0.3);
  EXPECT_NEAR(TextClassifier(folder.path() + "/model.bin", both).excess("the cart rolls on land"),
              0.25 - classifier.excess("the cart rolls on land"), 1e-4);  // probabilities add up to 1
  std::ifstream whole(folder.path() + "/model.bin", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(whole), {}};
  for (const std::size_t size :
       {std::size_t{40}, std::size_t{80}, std::size_t{110}, bytes.size() / 2, bytes.size() - 1}) {
    std::ofstream(folder.path() + "/cut.bin", std::ios::binary) << bytes.substr(0, size);
    EXPECT_THAT(test::message_of([&] { TextClassifier(folder.path() + "/cut.bin", sea); }),
                HasSubstr("cut.bin is not a model of fastText, or damaged: it was cut off"));
  }
  const std::vector<ClassLabel> air{{"air", 0.5}};
  EXPECT_THAT(test::message_of([&] { TextClassifier(folder.path() + "/model.bin", air); }),
              HasSubstr("has no label 'air': give some of "));
}
#endif

TEST(TextClassifier, RefusesOtherFiles) {
  if (!can_classify_texts()) GTEST_SKIP() << "built without fastText";
  const test::TemporaryDirectory folder;
  std::ofstream(folder.path() + "/x.bin") << "no model";
  const std::vector<ClassLabel> labels{{"good", 0.5}};
  EXPECT_THAT(test::message_of([&] { TextClassifier(folder.path() + "/x.bin", labels); }),
              HasSubstr("x.bin is not a model of fastText"));
}

}  // namespace
}  // namespace trireme::data
