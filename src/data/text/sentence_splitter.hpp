#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Splits text into sentences by rules. Returns the end of each: increasing, the last one text.size() unless `text` is
/// empty. A cut lies before the white space between two sentences, or right after a full stop of Chinese or Japanese.
/// The sentences thus concatenate to the text, and each begins like a word within a text.
///
/// 1. A blank line always ends a sentence.
/// 2. So do . ! ? and the ellipsis, and the full stops, exclamation and question marks of other scripts. Closing quotes
///    and brackets after them belong to the sentence. White space or the end must follow, except after those of Chinese
///    and Japanese (U+3002, U+FF01, U+FF0E, U+FF1F, U+FF61).
/// 3. These marks do not end a sentence where the next letter is lower case.
/// 4. A single '.' does not end a sentence after an abbreviation that precedes a name or number (Mr. Prof. St. No.
///    vs. e.g. Jan. and so on), a single capital letter (J. Smith), letters with points between (U.S. a.m.), or a
///    number that begins a line (1. First).
///
/// `text` is UTF-8; other bytes count as ordinary characters.
std::vector<std::size_t> sentence_ends(std::string_view text);

/// Returns whether a sentence of `text` ends before byte `at`, 0 < at < text.size(). The result depends on the line
/// before `at` and on the text after it. That text ends with the first character other than white space, quotes and
/// brackets. False where only white space follows.
bool is_sentence_end(std::string_view text, std::size_t at);

/// Returns whether the character may end a sentence: Unicode's Sentence_Terminal for living scripts, or an ellipsis.
bool is_sentence_mark(char32_t c);

}  // namespace trireme::data
