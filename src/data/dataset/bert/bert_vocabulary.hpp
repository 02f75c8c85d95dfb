#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Properties of a WordPiece vocabulary that BERT's samples depend on.
struct BertVocabulary {
  std::int64_t size = 0;
  std::int32_t pad = -1, cls = -1, sep = -1, mask = -1;
  std::vector<bool> continues_word;  ///< [size] true for pieces that begin with "##"
};

/// `tokens` by id, as a WordPiece tokenizer's payload lists them. Throws DataError naming the special token that is
/// missing.
BertVocabulary bert_vocabulary_of(std::span<const std::string> tokens);

}  // namespace trireme::data
