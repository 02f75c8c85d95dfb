#include "src/data/text/language.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* english = "The quick brown fox jumps over the lazy dog, and everybody thinks that it is fun.";
constexpr const char* german = "Der schnelle braune Fuchs springt über den faulen Hund, und alle finden das lustig.";

class Language : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_detect_languages()) GTEST_SKIP() << "built without CLD2";
  }
};

TEST_F(Language, TellsLanguagesApart) {
  const LanguageDetector detector({"en"});
  EXPECT_EQ(detector.detect(english).main, "en");
  EXPECT_GT(detector.detect(english).wanted_fraction, 0.9);
  EXPECT_EQ(detector.detect(german).main, "de");
  EXPECT_EQ(detector.detect(german).wanted_fraction, 0);
}

TEST_F(Language, SumsTheSharesOfTheRequestedLanguages) {
  const std::string both = std::string(english) + " " + german;
  const double english_fraction = LanguageDetector({"en"}).detect(both).wanted_fraction;
  EXPECT_GT(english_fraction, 0.3);
  EXPECT_LT(english_fraction, 0.7);
  EXPECT_GT(LanguageDetector({"de", "en"}).detect(both).wanted_fraction, 0.9);
}

TEST_F(Language, FindsNoLanguageInTextWithoutOne) {
  for (const char* text : {"", "12345 67890", "\n\n", "\xFF\xFE\x01"}) {
    const auto found = LanguageDetector({"en"}).detect(text);
    EXPECT_EQ(found.main, "un");
    EXPECT_EQ(found.wanted_fraction, 0);
  }
}

TEST_F(Language, RefusesUnknownLanguageCodes) {
  for (const char* code : {"xx", "un", "english", ""}) {
    EXPECT_THAT([&] { LanguageDetector({"de", code}); }, ThrowsMessage<ConfigError>(HasSubstr("is not the ISO 639")));
  }
}

TEST(LanguageWithoutItsLibrary, IsRefused) {
  if (can_detect_languages()) GTEST_SKIP() << "built with CLD2";
  EXPECT_THAT([] { LanguageDetector({"en"}); }, ThrowsMessage<EnvironmentError>(HasSubstr("libcld2-dev")));
}

}  // namespace
}  // namespace trireme::data
