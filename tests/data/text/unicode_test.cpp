#include "src/data/text/unicode.hpp"

#include <gtest/gtest.h>

#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

/// Returns UTF-8 that was read as Latin-1.
std::string misread(std::string_view text) {
  std::string result;
  for (const char byte : text) append_utf8(static_cast<unsigned char>(byte), result);
  return result;
}

TEST(UnicodeRepair, UndoesMisreadingAsWindows1252) {
  EXPECT_EQ(repaired("café"), "café");
  EXPECT_EQ(repaired("cafÃ©"), "café");
  EXPECT_EQ(repaired("Ã–sterreich, donâ€™t, â‚¬ 5"), "Österreich, don’t, € 5");
  EXPECT_EQ(repaired("Ð¢Ñ€Ð¸"), "Три");                      // a run of several characters
  EXPECT_EQ(repaired("mÄ™Å¼czyzna byÅ‚"), "mężczyzna był");  // the second occurs in ordinary text, too
  EXPECT_EQ(repaired("naÅ¡e ðŸ˜€"), "naše 😀");
  EXPECT_EQ(repaired("â\u0080\u009d"), "”");  // bytes without a character in windows-1252
}

TEST(UnicodeRepair, UndoesRepeatedMisreadingAsLatin1) {
  for (const std::string text : {"é", "naïve Übung", "日本語 text", "😀"}) {
    std::string misread_text = text;
    for (int times = 0; times < 3; ++times) {
      EXPECT_EQ(repaired(misread_text), text) << times;
      misread_text = misread(misread_text);
    }
  }
}

TEST(UnicodeRepair, KeepsWhatOrdinaryTextHas) {
  for (const std::string text :
       {"„Spaß“", "CAFÉ™", "“Olé”", "Fuß– und", "JÖ…", "«À bientôt»", "É. Ñandú ¿qué? ÄÖÜäöüß", "50 °C ±2 µm", "naïve",
        "Ελληνικά русский 日本語", "gárgedusa náššuvnnaid", "tabs\tand\r\nlines\f"}) {
    EXPECT_EQ(repaired(text), text);
  }
}

TEST(UnicodeRepair, RemovesControlsAndComposesLetters) {
  EXPECT_EQ(repaired(std::string("a\0b\x07\x1b[1m\x7f", 9)), "ab[1m");
  EXPECT_EQ(repaired("don\u0092t\u0085 \u0081x"), "don’t… x");  // C1 controls become windows-1252 characters
  EXPECT_EQ(repaired("\uFEFFtext\uFFFC\u206A"), "text");
  EXPECT_EQ(repaired("e\u0301te\u0301"), "été");
  EXPECT_EQ(repaired("eÌ\u0081"), "é");  // misread, then composed
}

TEST(UnicodeRepair, KeepsBytesThatAreNotUtf8) { EXPECT_EQ(repaired("\xFF cafÃ© \xC3"), "\xFF café \xC3"); }

TEST(UnicodeRepair, ChangesNothingTheSecondTime) {
  for (char32_t a = 0x80; a < 0x180; ++a) {
    for (char32_t b = 0x80; b < 0x180; ++b) {
      std::string text = "x";
      append_utf8(a, text);
      append_utf8(b, text);
      const std::string once = repaired(text);
      ASSERT_TRUE(is_utf8(once));
      ASSERT_EQ(repaired(once), once) << text;
    }
  }
}

}  // namespace
}  // namespace trireme::data
