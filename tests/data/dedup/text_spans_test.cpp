#include "src/data/dedup/text_spans.hpp"

#include <gmock/gmock.h>

namespace trireme::data {
namespace {

using ::testing::ElementsAre;

// The right sides are those of simplify_text in datatrove 0.10.1.
TEST(TextSpans, AreComparedAsDatatroveSimplifiesText) {
  EXPECT_EQ(simplified("  The CREW's 1,200 oars -- (well-known)!\t\n"), "the crew s 0 oars well known");
  EXPECT_EQ(simplified("Café É ΟΔΟΣ 12½ ١٢٣ x_y"), "cafe e οδος 0½ 0 x y");
  EXPECT_EQ(simplified("« Ω » …—!"), "ω");
  EXPECT_EQ(simplified(std::string_view("tab\0\x1f\u0085\u3000end \u0301 z", 18)), "tab end  z");
  EXPECT_EQ(simplified("İstanbul ﬁ １２：３"), "istanbul ﬁ 0 0");
  EXPECT_EQ(simplified("1.2.3 4,,5 6. 7،8"), "0 0 0 0 0 0");
  EXPECT_EQ(simplified("...\n"), "");
}

TEST(TextSpans, OfEqualPartsHaveEqualHashes) {
  const SpanOptions pairs{TextPart::lines, 2};
  const auto hashes = span_hashes("One.\r\nTWO 1\n--\n\none\ntwo 22", pairs);
  ASSERT_EQ(hashes.size(), 5);
  EXPECT_EQ(hashes[0], hashes[4]);
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[2], Hash128{});
  EXPECT_THAT(span_hashes("one", pairs), ElementsAre());
  EXPECT_EQ(span_hashes("Is it? It is. No more", {TextPart::sentences, 3}).size(), 1);
}

TEST(TextSpans, AreCutOutOfTheText) {
  const std::vector<std::size_t> firsts{0, 1, 5};
  EXPECT_EQ(without_spans("a\nb\nc\n\n d\re\nf", {TextPart::lines, 2}, firsts), "d");
  EXPECT_EQ(without_spans("A b. C d? E f!  G h.", {TextPart::sentences, 1}, std::vector<std::size_t>{0, 2}),
            "C d?  G h.");
  EXPECT_EQ(without_spans("a\n \nb", {TextPart::lines, 1}, std::vector<std::size_t>{0, 2}), "");
}

}  // namespace
}  // namespace trireme::data
