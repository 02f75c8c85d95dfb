#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/app/commands/generate/continuation_text.hpp"
#include "src/app/commands/generate/line_editor.hpp"
#include "src/app/job/progress_bar.hpp"
#include "src/app/job/terminal.hpp"
#include "tests/support/tokens.hpp"

namespace trireme::app {
namespace {

using data::Tokenizer;
using infer::Continuation;
using State = LineBuffer::State;

/// Byte-level BPE whose tokens are the 256 bytes, "the" 256, " s" 257 and " st" 258.
std::unique_ptr<Tokenizer> small_tokenizer() {
  data::BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"th", "the", " s", " st", "<|endoftext|>"});
  vocabulary.merges = {{"t", "h"}, {"th", "e"}, {" ", "s"}, {" s", "t"}};
  vocabulary.end_of_document = 260;
  return data::make_gpt2_tokenizer(std::move(vocabulary));
}

Continuation continuation_of(std::vector<std::int32_t> tokens) {
  Continuation continuation;
  for (const std::int32_t token : tokens) continuation.log_probabilities.push_back({{token, -1.0}});
  continuation.tokens = std::move(tokens);
  return continuation;
}

TEST(ContinuationText, HasTokensAndTextThatAgreeAfterAStop) {
  const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  const std::vector<std::string> stops = {"no such", "tx"};
  const ContinuationText texts(*tokenizer, stops);
  // "the" " st" "x": the stop begins inside " st", of which " s" is left.
  Continuation continuation = continuation_of({257, 259, 'x'});
  EXPECT_TRUE(texts.stops(continuation.tokens));
  EXPECT_EQ(texts.finish(continuation), "the s");
  EXPECT_EQ(continuation.tokens, (std::vector<std::int32_t>{257, 258}));
  EXPECT_EQ(texts.decode(continuation.tokens), "the s");
  ASSERT_EQ(continuation.log_probabilities.size(), 2u);
  EXPECT_EQ(continuation.log_probabilities[0].front().log_probability, -1);
  EXPECT_TRUE(std::isnan(continuation.log_probabilities[1].front().log_probability));
  // Between two tokens nothing is spelled anew; without a stop nothing is cut.
  continuation = continuation_of({257, 't', 'x', 'y'});
  EXPECT_EQ(texts.finish(continuation), "the");
  EXPECT_EQ(continuation.tokens, (std::vector<std::int32_t>{257}));
  continuation = continuation_of({257, 259});
  EXPECT_FALSE(texts.stops(continuation.tokens));
  EXPECT_EQ(texts.finish(continuation), "the st");
}

TEST(ContinuationText, KeepsTheSpaceThatBeginsIt) {
  const auto tokenizer = data::make_huggingface_tokenizer(test::characters_of({{"t", "h"}, {"\u2581", "th"}}));
  const std::vector<std::string> stops = {"hx"};
  const ContinuationText texts(*tokenizer, stops);
  std::vector<std::int32_t> tokens = test::encode(*tokenizer, "th thx");
  Continuation continuation = continuation_of(tokens);
  EXPECT_EQ(texts.finish(continuation), " th t");
  EXPECT_EQ(texts.decode(continuation.tokens), " th t");
  EXPECT_EQ(texts.decode(std::vector{tokens[0], tokens[0]}), " th th");
}

TEST(ContinuationText, SettlesWholeCharactersBeforeWhatMayBecomeAStop) {
  const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  const std::vector<std::string> none, stops = {"END", "\n\n"};
  const ContinuationText plain(*tokenizer, none), stopping(*tokenizer, stops);
  EXPECT_EQ(plain.settled_bytes("a\xC3\xA4"), 3u);
  EXPECT_EQ(plain.settled_bytes("a\xC3"), 1u);
  EXPECT_EQ(plain.settled_bytes("a\xF0\x9F\x98"), 1u);
  EXPECT_EQ(plain.settled_bytes("a\x98"), 2u) << "no character begins there";
  EXPECT_EQ(stopping.settled_bytes("the E"), 4u);
  EXPECT_EQ(stopping.settled_bytes("the EN"), 4u);
  EXPECT_EQ(stopping.settled_bytes("the ENs"), 7u);
  EXPECT_EQ(stopping.settled_bytes("a\n"), 1u);
  EXPECT_EQ(stopping.settled_bytes("a END"), 2u);
}

/// Feeds the bytes of `keys`, and returns the state after the last.
State type(LineBuffer& line, const std::string& keys) {
  State state = State::editing;
  for (const char key : keys) state = line.feed(key);
  return state;
}

TEST(LineBuffer, EditsWholeCharacters) {
  LineBuffer line;
  type(line, "a\xC3\xA4z\x1b[D\x7f");  // left, backspace
  EXPECT_EQ(line.text(), "az");
  type(line, "\x01\x1b[3~\x05!");  // home, delete, end
  EXPECT_EQ(line.text(), "z!");
  type(line, " two words\x17");  // erases a word
  EXPECT_EQ(line.text(), "z! two ");
  type(line, "\x1bOH\x1b[C\x0b");  // home, right, erase to the end
  EXPECT_EQ(line.text(), "z");
  EXPECT_EQ(line.cursor(), 1u);
  type(line, "\x1b[1;5C\x1b[Z");  // nothing is left of unknown keys
  EXPECT_EQ(line.text(), "z");
  EXPECT_EQ(type(line, "\x04"), State::editing) << "deletes at the end of the line: nothing";
  EXPECT_EQ(type(line, "\x03"), State::editing);
  EXPECT_EQ(line.text(), "");
  EXPECT_EQ(type(line, "\x04"), State::end);
}

TEST(LineBuffer, RecallsEarlierLinesAndKeepsTheNewOne) {
  LineBuffer line;
  for (const char* text : {"one\r", "two\r", "two\r"}) {
    EXPECT_EQ(type(line, text), State::complete);
    line.take();
  }
  type(line, "new\x1b[A");
  EXPECT_EQ(line.text(), "two");
  type(line, "\x1b[A\x1b[A");
  EXPECT_EQ(line.text(), "one") << "equal lines are one; the first is the last to recall";
  type(line, "\x1b[B\x1b[B");
  EXPECT_EQ(line.text(), "new");
}

TEST(Terminal, CountsColumnsOfWideAndCombiningCharacters) {
  EXPECT_EQ(display_columns("a\xC3\xA4"), 2);
  EXPECT_EQ(display_columns("e\xCC\x81"), 1);      // with a combining accent
  EXPECT_EQ(display_columns("\xE6\x97\xA5!"), 3);  // U+65E5
  EXPECT_EQ(fitting("\xE6\x97\xA5\xE6\x97\xA5", 3), "\xE6\x97\xA5");
  EXPECT_EQ(fitting("abc", 2), "ab");
}

TEST(Sparkline, JoinsValuesAndSpansTheirRange) {
  Sparkline line(4);
  EXPECT_EQ(line.text(), "");
  line.add(3);
  EXPECT_EQ(line.text(), "▁");
  for (const double value : {2, 1, 1}) line.add(value);
  EXPECT_EQ(line.text(), "█▅▁▁");
  line.add(0);  // two values a column: 2.5, 1, 0
  EXPECT_EQ(line.text(), "█▄▁");
}

}  // namespace
}  // namespace trireme::app
