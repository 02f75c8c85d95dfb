#include "src/data/dataset/gpt/fim_samples.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

using testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

// Ids 0 to 255 are bytes, 256 ends documents, 257 is a special token of the text. "ab" is one token, 300.
constexpr std::int32_t end_of_document = 256, special = 257, prefix = 258, middle = 259, suffix = 260, ab = 300;

Tokens encoded(std::string_view text) {
  Tokens tokens;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "ab") {
      tokens.push_back(ab);
      ++i;
    } else {
      tokens.push_back(static_cast<unsigned char>(text[i]));
    }
  }
  return tokens;
}

std::string decoded(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += token == ab ? "ab" : std::string(1, static_cast<char>(token));
  return text;
}

FimOptions fim_of(double rate, double spm_rate) {
  return {.rate = rate,
          .spm_rate = spm_rate,
          .split_token = {},
          .no_prefix = {},
          .prefix = prefix,
          .middle = middle,
          .suffix = suffix,
          .end_of_document = end_of_document,
          .codec = {.decode = decoded,
                    .encode =
                        [](std::string_view text, Tokens& tokens) {
                          const Tokens more = encoded(text);
                          tokens.insert(tokens.end(), more.begin(), more.end());
                        },
                    .is_special = [](std::int32_t token) { return token == special; }}};
}

/// One sample of a given text, with given document starts.
class GivenSample final : public NextTokenSamples {
 public:
  explicit GivenSample(Tokens text, std::vector<std::int64_t> starts = {})
      : text_(std::move(text)), starts_(std::move(starts)) {}
  std::int64_t size() const override { return 1; }
  std::int64_t sequence_length() const override { return std::ssize(text_) - 1; }
  void read_text(std::int64_t, std::span<std::int32_t> text) const override { std::ranges::copy(text_, text.begin()); }
  std::vector<std::int64_t> document_starts(std::int64_t) const override { return starts_; }

 private:
  Tokens text_;
  std::vector<std::int64_t> starts_;
};

Tokens read(const Tokens& text, const FimOptions& options, std::int64_t seed = 1) {
  const FimSamples samples(std::make_unique<GivenSample>(text), options, seed);
  Tokens result(text.size());
  samples.read_text(0, result);
  return result;
}

/// Undoes `rearranged`: returns the parts in the order of the text.
Tokens in_order(const Tokens& tokens) {
  const auto at = [&](std::int32_t mark) { return std::ranges::find(tokens, mark); };
  EXPECT_EQ(tokens.front(), prefix);
  Tokens p, m, s(at(suffix) + 1, at(middle));
  if (at(suffix) == tokens.begin() + 1 && at(suffix) != tokens.end()) {
    // SPM, or PSM with an empty prefix: in both, the text after the middle's mark precedes the suffix.
    m.assign(at(middle) + 1, tokens.end());
  } else {
    p.assign(tokens.begin() + 1, at(suffix));
    m.assign(at(middle) + 1, tokens.end());
  }
  p.insert(p.end(), m.begin(), m.end());
  p.insert(p.end(), s.begin(), s.end());
  return p;
}

TEST(FillInMiddle, CutsTextBeforeTheCharactersThatTheGeneratorDraws) {
  const Tokens text = encoded("cabcde");  // 5 tokens, 6 characters
  ASSERT_EQ(text.size(), 5u);
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    NumpyRandom draws(seed), random(seed);
    auto begin = draws.randint(7), end = draws.randint(7);
    if (begin > end) std::swap(begin, end);
    const std::string p = std::string("cabcde").substr(0, begin), m = std::string("cabcde").substr(begin, end - begin),
                      s = std::string("cabcde").substr(end);
    Tokens psm = {prefix};
    const auto add = [](Tokens& tokens, const std::string& part) {
      for (const std::int32_t token : encoded(part)) tokens.push_back(token);
    };
    add(psm, p);
    psm.push_back(suffix);
    add(psm, s);
    psm.push_back(middle);
    add(psm, m);
    EXPECT_EQ(rearranged(text, fim_of(1, 0), random), psm) << seed;

    Tokens spm = {prefix, suffix};
    add(spm, s);
    spm.push_back(middle);
    add(spm, p);
    add(spm, m);
    NumpyRandom again(seed);
    EXPECT_EQ(rearranged(text, fim_of(1, 1), again), spm) << seed;
  }
}

/// Tests two documents of three characters, with or without an end-of-document token, and the start of a third.
void expect_documents_after_rearrangement(bool has_ends) {
  const std::int64_t size = has_ends ? 4 : 3, s = 23;
  Tokens text(static_cast<std::size_t>(s) + 1, 'z');
  std::ranges::copy(has_ends ? Tokens{'a', 'c', 'e', end_of_document, 'f', 'g', 'h', end_of_document}
                             : Tokens{'a', 'c', 'e', 'f', 'g', 'h'},
                    text.begin());
  const FimSamples samples(std::make_unique<GivenSample>(text, std::vector<std::int64_t>{size, 2 * size}),
                           fim_of(1, 0.5), 1, DocumentEnds::unlabelled);
  Tokens arranged(text.size());
  samples.read_text(0, arranged);
  const std::vector<std::int64_t> starts = samples.document_starts(0);
  ASSERT_THAT(starts, ElementsAre(size + 3, 2 * (size + 3)));  // plus three marks each
  for (const std::int64_t start : {std::int64_t{0}, starts[0], starts[1]}) {
    EXPECT_EQ(arranged[static_cast<std::size_t>(start)], prefix);
  }
  std::vector<std::int32_t> tokens(s), labels(s), positions(s), visible(s);
  std::int32_t length = 0;
  SampleView view;
  view.tokens = tokens;
  view.labels = labels;
  view.positions = positions;
  view.first_visible = visible;
  view.length = std::span(&length, 1);
  samples.read(0, view);
  for (std::int64_t i = 0; i < s; ++i) {
    const std::int64_t start = i < starts[0] ? 0 : i < starts[1] ? starts[0] : starts[1];
    const auto place = static_cast<std::size_t>(i);
    EXPECT_EQ(positions[place], i - start);
    EXPECT_EQ(visible[place], start);
    const bool is_last = i + 1 == starts[0] || i + 1 == starts[1];
    EXPECT_EQ(labels[place], is_last ? -1 : arranged[place + 1]) << i;
  }
}

TEST(FillInMiddle, DocumentStartsFollowTheRearrangement) {
  expect_documents_after_rearrangement(true);
  expect_documents_after_rearrangement(false);
}

TEST(FillInMiddle, KeepsTheTextItsCharactersAndItsSpecialTokens) {
  Tokens text = encoded("na\xc3\xafve \xe2\x82\xac");
  text.insert(text.begin() + 4, special);  // after the two bytes of a character
  const Tokens more = encoded(" abab");
  text.insert(text.end(), more.begin(), more.end());
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    NumpyRandom random(seed);
    const Tokens result = rearranged(text, fim_of(1, 0.5), random);
    Tokens whole = in_order(result);
    EXPECT_EQ(std::ranges::count(whole, special), 1);
    // A continuation byte follows another byte of its character.
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (result[i] < 256 && (result[i] & 0xC0) == 0x80) {
        EXPECT_GT(i, 0u);
        EXPECT_LT(result[i - 1], 256);
        EXPECT_GE(result[i - 1], 0x80);
      }
    }
    const auto at = std::ranges::find(whole, special);
    EXPECT_EQ(decoded(Tokens(whole.begin(), at)), "na\xc3\xaf");
    EXPECT_EQ(decoded(Tokens(at + 1, whole.end())), "ve \xe2\x82\xac abab");
  }
}

TEST(FimSamples, AreRearrangedDocumentByDocumentAndKeepTheirLength) {
  Tokens text = encoded("first");
  for (const char* document : {"second", "", "third and cut"}) {
    text.push_back(end_of_document);
    const Tokens more = encoded(document);
    text.insert(text.end(), more.begin(), more.end());
  }
  EXPECT_EQ(read(text, fim_of(0, 0.5)), text);
  for (std::int64_t seed = 0; seed < 50; ++seed) {
    const Tokens result = read(text, fim_of(1, 0.5), seed);
    ASSERT_EQ(result.size(), text.size());
    EXPECT_EQ(result, read(text, fim_of(1, 0.5), seed));
    const auto first = std::ranges::find(result, end_of_document);
    const auto second = std::find(first + 1, result.end(), end_of_document);
    EXPECT_EQ(decoded(in_order({result.begin(), first})), "first");
    EXPECT_EQ(decoded(in_order({first + 1, second})), "second");
    EXPECT_EQ(*(second + 1), end_of_document);  // the empty document
    EXPECT_EQ(*(second + 2), prefix);
  }
  // The draws depend on the seed, and some documents are left unchanged.
  EXPECT_NE(read(text, fim_of(1, 0.5), 1), read(text, fim_of(1, 0.5), 2));
  int changed = 0;
  for (std::int64_t seed = 0; seed < 400; ++seed) {
    const Tokens result = read(encoded("0123456789"), fim_of(0.25, 0.5), seed);
    changed += result.front() == prefix ? 1 : 0;
  }
  EXPECT_NEAR(changed, 100, 30);  // three and a half standard deviations
}

TEST(FimSamples, RearrangeFragmentsByThemselves) {
  FimOptions options = fim_of(1, 0);
  options.split_token = '|';
  options.fragment_rate = 1;
  options.no_prefix = "keep";
  const Tokens text = encoded("one|keep this|two|zzzzzzzzz");
  const Tokens result = read(text, options);
  const auto a = std::ranges::find(result, '|');
  const auto b = std::find(a + 1, result.end(), '|');
  const auto c = std::find(b + 1, result.end(), '|');
  EXPECT_EQ(decoded(in_order({result.begin(), a})), "one");
  EXPECT_EQ(decoded(Tokens(a + 1, b)), "keep this");
  EXPECT_EQ(decoded(in_order({b + 1, c})), "two");
  options.fragment_rate = 0;
  EXPECT_EQ(read(text, options), text);
}

TEST(FimSamples, EndEarlyWhereTheEncodingIsShorter) {
  // The tokens "a" and "b" become one token unless a cut separates them.
  FimOptions options = fim_of(1, 0);
  Tokens text(16);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = i % 2 == 0 ? 'a' : 'b';
  const Tokens result = read(text, options, 3);
  EXPECT_EQ(result.size(), text.size());
  const auto end = std::ranges::find(result, -1);
  EXPECT_EQ(decoded(in_order({result.begin(), end})), "abababababababab");
  EXPECT_TRUE(std::all_of(end, result.end(), [](std::int32_t token) { return token == -1; }));
}

TEST(FimOptions, AreChecked) {
  EXPECT_NO_THROW(validate(fim_of(0.5, 0.5), 301));
  EXPECT_THROW(validate(fim_of(1.5, 0.5), 301), ConfigError);
  EXPECT_THROW(validate(fim_of(0.5, 0.5), 260), ConfigError);
  FimOptions same = fim_of(0.5, 0.5);
  same.middle = same.prefix;
  EXPECT_THROW(validate(same, 301), ConfigError);
}

}  // namespace
}  // namespace trireme::data
