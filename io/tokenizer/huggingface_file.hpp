#pragma once

#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

/// Reads Hugging Face's `tokenizer.json` of the byte-level BPE kind: vocabulary, merges (texts "a b" or pairs), added
/// tokens, no normalizer or NFC, and one of the patterns of `data::WordSplitter`. Tokens that its post-processor puts
/// around texts are not added, but logged. Names of special tokens in texts are ordinary text; other added tokens are
/// recognised. `end_of_document` names the token that ends documents; if empty, that is <|endoftext|>, <|end_of_text|>
/// or </s>, whichever exists first.
///
/// Throws IoError if the file cannot be read. Throws DataError naming the part that is damaged or cannot be reproduced
/// exactly.
data::BpeVocabulary read_huggingface_file(const std::string& path, const std::string& end_of_document);
/// Reads the contents of a `tokenizer.json`; the path is for messages.
data::BpeVocabulary parse_huggingface_file(const std::string& text, const std::string& path,
                                           const std::string& end_of_document);

/// The regular expression of a pattern, as tokenizer.json spells it.
std::string huggingface_pattern(data::WordPattern pattern);

}  // namespace trireme::io
