#include "src/data/dedup/ngrams.hpp"

#include <gmock/gmock.h>

#include <string>

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> ngrams(std::string_view text, int n) {
  std::vector<std::string> result;
  for (NgramReader reader(text, n); reader.next();) {
    result.emplace_back(text.substr(reader.begin(), reader.end() - reader.begin()));
  }
  return result;
}

std::vector<std::uint64_t> hashes(std::string_view text, int n) {
  std::vector<std::uint64_t> result;
  for (NgramReader reader(text, n); reader.next();) result.push_back(reader.hash());
  return result;
}

TEST(Words, AreCutAtUnicodesWhiteSpaceAndLowered) {
  EXPECT_EQ(folded("  The\tSHIP's\u00A0Élan,\u2003Ωmega\x1F\u3000x\u0085Y "), "the ship's élan, ωmega x y");
  EXPECT_EQ(folded(" \n"), "");
  EXPECT_EQ(folded("a\u200Bb"), "a\u200Bb");  // not white space
  EXPECT_EQ(folded("A\xFFZ \xC3"), "a\xFFz \xC3");
}

TEST(Ngrams, AreSuccessiveWordsWithTheirPlaces) {
  EXPECT_THAT(ngrams("one  two three\nfour ", 2), ElementsAre("one  two", "two three", "three\nfour"));
  EXPECT_THAT(ngrams("one two", 3), IsEmpty());
  EXPECT_THAT(ngrams("", 1), IsEmpty());
  EXPECT_THAT(ngrams("one two", 1), ElementsAre("one", "two"));
}

TEST(Ngrams, HaveHashesOfTheirWordsAlone) {
  EXPECT_EQ(hashes("x y a b c", 3).back(), hashes("A\nB  c", 3).front());
  EXPECT_NE(hashes("a b c", 3), hashes("a c b", 3));
  EXPECT_NE(hashes("ab c", 2), hashes("a bc", 2));
  EXPECT_NE(hashes("a a", 2), hashes("b b", 2));
}

TEST(HashSet, FindsAnyNumberOfInsertedValues) {
  HashSet set;
  for (std::uint64_t i = 0; i < 5000; ++i) set.insert(i % 4000);
  EXPECT_EQ(set.size(), 3999);  // 0 and 1 are the same element
  for (std::uint64_t i = 0; i < 4000; ++i) EXPECT_GE(set.find(i), 0);
  EXPECT_EQ(set.find(4000), -1);
}

TEST(Removal, CutsAtSentencesBeyondTheMargin) {
  const std::string text = "First one. Then a second here. BAD words now. After that. The end.";
  const std::size_t bad = text.find("BAD");
  const std::vector<TextRange> passages = {{bad, bad + 9}};
  const auto left = [&](RemovalOptions options) {
    std::vector<std::string> result;
    for (const TextRange& piece : pieces_without(text, passages, options)) {
      result.push_back(text.substr(piece.begin, piece.end - piece.begin));
    }
    return result;
  };
  EXPECT_THAT(left({.margin = 0, .min_piece = 1, .max_cuts = 1}),
              ElementsAre("First one. Then a second here.", "After that. The end."));
  EXPECT_THAT(left({.margin = 5, .min_piece = 1, .max_cuts = 1}), ElementsAre("First one.", "After that. The end."));
  EXPECT_THAT(left({.margin = 0, .min_piece = 21, .max_cuts = 1}), ElementsAre("First one. Then a second here."));
  EXPECT_THAT(left({.margin = 99, .min_piece = 1, .max_cuts = 1}), IsEmpty());
  EXPECT_THAT(left({.margin = 0, .min_piece = 1, .max_cuts = 0}), IsEmpty());
}

TEST(Removal, JoinsPassagesThatTouchAndCountsCharactersNotBytes) {
  const std::string text = "ééé. BAD. worse. ööö.";
  const std::size_t bad = text.find("BAD");
  const std::vector<TextRange> passages = {{bad, bad + 3}, {bad + 2, bad + 9}};
  EXPECT_THAT(pieces_without(text, passages, {.margin = 0, .min_piece = 4, .max_cuts = 1}),
              ElementsAre(TextRange{0, 7}, TextRange{text.find("ööö"), text.size()}));
  EXPECT_THAT(pieces_without(text, passages, {.margin = 0, .min_piece = 5, .max_cuts = 1}), IsEmpty());
  EXPECT_THAT(pieces_without(text, {}, {.min_piece = 1}), ElementsAre(TextRange{0, text.size()}));
}

}  // namespace
}  // namespace trireme::data
