#include "src/data/text/sentence_splitter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace trireme::data {
namespace {

using testing::ElementsAre;

std::vector<std::string> sentences(const std::string& text) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (const std::size_t end : sentence_ends(text)) {
    result.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

TEST(SentenceSplitter, CutsBehindStopsBeforeTheWhiteSpace) {
  EXPECT_THAT(sentences("It sails. It rows! Does it sink? No.\n"),
              ElementsAre("It sails.", " It rows!", " Does it sink?", " No.\n"));
  EXPECT_THAT(sentences("no stop at all"), ElementsAre("no stop at all"));
  EXPECT_THAT(sentences(""), ElementsAre());
  EXPECT_THAT(sentences("One line\nof a sentence. Another"), ElementsAre("One line\nof a sentence.", " Another"));
}

TEST(SentenceSplitter, TakesClosingQuotesAndBracketsAlong) {
  EXPECT_THAT(sentences("\"Row!\" He rowed. (They sank.) \u201CWhy?\u201D \u2018So.\u2019 End"),
              ElementsAre("\"Row!\"", " He rowed.", " (They sank.)", " \u201CWhy?\u201D", " \u2018So.\u2019", " End"));
  EXPECT_THAT(sentences("\"Row!\" he said. \u201CWhy?\u201D asked she."),
              ElementsAre("\"Row!\" he said.", " \u201CWhy?\u201D asked she."));
  EXPECT_THAT(sentences("He came. \"Row.\" \"No.\""), ElementsAre("He came.", " \"Row.\"", " \"No.\""));
}

// Each mark looks back for its stop, at most 64 marks: a million of them would take hours otherwise.
TEST(SentenceSplitter, ReadsALongRunOfClosingMarksInATimeThatGrowsWithIt) {
  std::string marks;
  for (int i = 0; i < 1'000'000; ++i) marks += "\u201D";
  EXPECT_THAT(sentences("Stop. " + marks + "."), ElementsAre("Stop.", " " + marks + "."));
  EXPECT_THAT(sentences("Stop.\u201D\u201D\u201D Go"), ElementsAre("Stop.\u201D\u201D\u201D", " Go"));
}

TEST(SentenceSplitter, KnowsAbbreviationsInitialsAndNumbers) {
  EXPECT_THAT(sentences("Dr. Smith met Mrs. J. R. Jones. They left."),
              ElementsAre("Dr. Smith met Mrs. J. R. Jones.", " They left."));
  EXPECT_THAT(sentences("See Fig. 3 and No. 7, e.g. Athens. It is 3.14 long."),
              ElementsAre("See Fig. 3 and No. 7, e.g. Athens.", " It is 3.14 long."));
  EXPECT_THAT(sentences("The U.S. Navy sailed at 5 a.m. Monday. In 1990. Then"),
              ElementsAre("The U.S. Navy sailed at 5 a.m. Monday.", " In 1990.", " Then"));
  EXPECT_THAT(sentences("1. First. 2. Second.\n 3. Third."),
              ElementsAre("1. First.", " 2.", " Second.", "\n 3. Third."));
  EXPECT_THAT(sentences("Oars, sails, etc. The rest. etc. and so on."),
              ElementsAre("Oars, sails, etc.", " The rest. etc. and so on."));
}

TEST(SentenceSplitter, EndsASentenceOfDotsOnlyBeforeACapital) {
  EXPECT_THAT(sentences("Well... maybe. Well... Maybe. So\u2026 Yes?! No"),
              ElementsAre("Well... maybe.", " Well...", " Maybe.", " So\u2026", " Yes?!", " No"));
}

TEST(SentenceSplitter, EndsASentenceAtABlankLine) {
  EXPECT_THAT(sentences("A heading\n\nthe text, Mr.\n \nSmith"),
              ElementsAre("A heading", "\n\nthe text, Mr.", "\n \nSmith"));
  EXPECT_THAT(sentences("a\r\n\r\nb\u2029c\n\n"), ElementsAre("a", "\r\n\r\nb", "\u2029c\n\n"));
}

TEST(SentenceSplitter, KnowsOtherScripts) {
  EXPECT_THAT(sentences("\u8239\u3002\u6F15\u3050\uFF01\u300C\u306F\u3044\u3002\u300D\u7D42"),
              ElementsAre("\u8239\u3002", "\u6F15\u3050\uFF01", "\u300C\u306F\u3044\u3002\u300D", "\u7D42"));
  EXPECT_THAT(sentences("\u0928\u093E\u0935\u0964 \u0928\u0926\u0940\u0964"),
              ElementsAre("\u0928\u093E\u0935\u0964", " \u0928\u0926\u0940\u0964"));
  EXPECT_THAT(sentences("\u0417\u0434\u0435\u0441\u044C. \u0418 \u0442\u0430\u043C. \u0434\u0430."),
              ElementsAre("\u0417\u0434\u0435\u0441\u044C.", " \u0418 \u0442\u0430\u043C. \u0434\u0430."));
}

TEST(SentenceSplitter, NeverCutsWithinACharacterAndTakesAnyBytes) {
  std::mt19937 random(6);
  const std::string likely = ". ! ?\n\n\"')a1A.\xE3\x80\x82\xE2\x80\x9D\xC3\xA9\xFF";
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text;
    const std::size_t size = random() % 80;
    while (text.size() < size) text += likely[random() % likely.size()];
    std::size_t begin = 0;
    for (const std::size_t end : sentence_ends(text)) {
      ASSERT_LT(begin, end);
      begin = end;
    }
    ASSERT_EQ(begin, text.size());
  }
}

}  // namespace
}  // namespace trireme::data
