#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// Repairs the damage of wrong conversions to text, in this order, and changes nothing else:
///
/// 1. UTF-8 that was read as windows-1252 or Latin-1 ("cafÃ©", "donâ€™t"). Each longest run of characters for bytes
///    from 0x80 on in windows-1252 is converted to those bytes. The five bytes that windows-1252 lacks, and the C1
///    controls, stand for themselves. Where the bytes are UTF-8, they replace the run. This is repeated until nothing
///    changes. Some runs occur in ordinary text, too: lower-case letters alone, as in Northern Sami "ášši"; a letter
///    and then a quotation mark, dash or another sign that follows words („Spaß“, "CAFÉ™"). Neither begins with Â or Ã.
///    Such a run is replaced only if most of the text's other runs are UTF-8.
/// 2. C1 controls, U+0080 to U+009F, become the windows-1252 characters of these bytes, if any.
/// 3. Controls are removed: U+0000 to U+001F except tab, line feed, form feed and carriage return; U+007F to U+009F;
///    U+206A to U+206F; U+FEFF; U+FFF9 to U+FFFC.
/// 4. Letters and marks are joined where Unicode has one character for them (NFC).
///
/// `text` is UTF-8; other bytes are kept.
std::string repaired(std::string_view text);

}  // namespace trireme::data
