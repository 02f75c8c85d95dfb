#pragma once

#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

/// Names of the token that ends documents: `wanted`, or if it is empty <|endoftext|>, <|end_of_text|>, </s> or
/// `otherwise`, whichever exists first.
struct EndNames {
  std::string wanted = {}, otherwise = {};
};

/// Reads Mistral's `tekken.json`, as `read_tekken` does, or Hugging Face's `tokenizer.json` of a byte-level BPE, or of
/// one of characters that falls back to bytes: vocabulary, merges (texts "a b" or pairs), added tokens, and what
/// `read_huggingface_form` supports. Names of special tokens in texts are ordinary text; other added tokens are
/// recognised.
///
/// Throws IoError if the file cannot be read. Throws DataError naming the part that is damaged or cannot be reproduced
/// exactly.
data::BpeVocabulary read_huggingface_file(const std::string& path, const EndNames& end);
/// Reads the contents of such a file; the path is for messages.
data::BpeVocabulary parse_huggingface_file(const std::string& text, const std::string& path, const EndNames& end);

}  // namespace trireme::io
