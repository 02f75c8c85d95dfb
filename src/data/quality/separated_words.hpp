#pragma once

#include <string_view>
#include <vector>

namespace trireme::data {

/// Appends the words and signs of `text` as the rules of quality count them: views of the text, in order.
///
/// White space (Python's str.split) separates chunks. From each chunk these are separated, in the manner of the Penn
/// Treebank and of spaCy's English rules:
///
/// 1. signs at its ends: each a word of its own, successive full stops one word ("(well...": "(", "well", "..."); of
///    ASCII's not + - = / ^ ~ | @ and backslash;
/// 2. a full stop at its end, unless the chunk has an earlier one ("U.S."), or is a capital letter or a title ("J.",
///    "Mr.");
/// 3. the endings 's, 're, 've, 'll, 'd, 'm and n't, with ' or U+2019, and the "not" of "cannot";
/// 4. hyphens and dashes between a letter or digit and a letter ("well-known": three words), and : < > = / between
///    letters or digits and a letter, commas between letters, and a full stop between a small and a capital letter.
///
/// Addresses with "://", "www." or "@" keep the signs within them.
void separated_words(std::string_view text, std::vector<std::string_view>& words);

}  // namespace trireme::data
