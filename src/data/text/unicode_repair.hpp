#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// Mends what wrong conversions do to text, in this order, and changes nothing else:
///
/// 1. UTF-8 that was read as windows-1252 or Latin-1 ("cafÃ©", "donâ€™t"). Of every longest run of characters that each
///    stand for a byte from 0x80 on in windows-1252 (the five bytes that it leaves out, and the C1 controls, stand for
///    themselves) those bytes are taken: where they are UTF-8, the run becomes what they say. This is done again until
///    nothing changes. A run that ordinary text has, too (lower-case letters alone, as in Northern Sami "ášši"; two
///    characters that are a letter and then a quotation mark, dash or another sign as it stands behind a word, „Spaß“,
///    "CAFÉ™"; neither with Â or Ã first), becomes what it says only where more of the text's other runs are UTF-8 than
///    are not.
/// 2. C1 controls, U+0080 to U+009F, become the characters of windows-1252 of these bytes, where there are any.
/// 3. Controls are removed: U+0000 to U+001F but for tab, line feed, form feed and carriage return; U+007F to U+009F;
///    U+206A to U+206F; U+FEFF; U+FFF9 to U+FFFC.
/// 4. Letters and marks are joined where Unicode has one character for them (NFC).
///
/// `text` is UTF-8; bytes that are not stay as they are.
std::string repaired(std::string_view text);

}  // namespace trireme::data
