#include "src/base/text.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"

namespace trireme {
namespace {

using namespace std::string_literals;

TEST(Visible, EscapesControlCharactersAlone) {
  EXPECT_EQ(visible("a\0b\x1b[31m\r\x7f"s), "a\\x00b\\x1b[31m\\x0d\\x7f");
  EXPECT_EQ(visible("two\nlines\tand \\n"), "two\nlines\tand \\n");
  EXPECT_EQ(visible("two\nlines\t", ""), "two\\nlines\\t");
  EXPECT_EQ(visible("caf\u00e9 \u8239 \u00a0\xff"), "caf\u00e9 \u8239 \u00a0\xff");
  EXPECT_EQ(visible("\xc2\x9b"
                    "31m\xc2"),
            "\\xc2\\x9b31m\xc2");
}

TEST(AsUtf8, ReplacesEachTruncatedCharacterAndOtherByteOnce) {
  EXPECT_EQ(as_utf8(""), "");
  EXPECT_EQ(as_utf8("caf\u00e9\0"s), "caf\u00e9\0"s);
  EXPECT_EQ(as_utf8("a\xff\x80z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(as_utf8("\xf0\x9f\x98"), "\uFFFD");
  EXPECT_EQ(as_utf8("\xe6\x97z\xc3"), "\uFFFDz\uFFFD");
  EXPECT_EQ(as_utf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD") << "a surrogate";
}

TEST(Visible, MessagesContinueBehindANul) {
  EXPECT_STREQ(DataError("the tensor '{}' is damaged", "a\0\x1b[2Jb"s).what(),
               "the tensor 'a\\x00\\x1b[2Jb' is damaged");
  EXPECT_STREQ(DataError("first line\n  second").what(), "first line\n  second");
  EXPECT_EQ(shortened("a\nb\x1b"), "a\\nb\\x1b");
}

}  // namespace
}  // namespace trireme
