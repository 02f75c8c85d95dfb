#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/dataset/bert/bert_sample_map.hpp"
#include "src/data/dataset/numpy_random.hpp"
#include "src/data/dataset/token_store.hpp"

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

struct BertMaskingOptions {
  BertVocabulary vocabulary;
  double mask_probability = 0.15;  ///< above 0, at most 1
  bool binary_head = true;         ///< two segments in drawn order, for the sentence-order task
};

/// Minimum number of sentences per document and sample: one for each segment.
inline std::int64_t min_sentences_of(const BertMaskingOptions& options) { return options.binary_head ? 2 : 1; }

/// Sample of [CLS] A [SEP] B [SEP], or [CLS] A [SEP] without the binary head, before its padding.
struct BertSample {
  BertSampleRow row;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> token_types;  ///< 0 to the first [SEP], 1 after it
  std::vector<std::int32_t> labels;       ///< token at a masked position; -1 elsewhere
  bool is_random = false;                 ///< A and B are swapped
  bool is_truncated = false;              ///< tokens were removed to reach the target
};

/// Makes Megatron-LM's sample of `row`, draw for draw. With the binary head the sentences are split at random into A
/// and B, which are swapped with probability 1/2. Tokens are removed one at a time from a random end of the longer
/// segment. `row` must lie in the corpus, have two sentences with the binary head, and a target of at least 2. Throws
/// DataError if a segment is empty.
BertSample make_bert_sample(const TokenStore& store, const BertSampleRow& row, const BertMaskingOptions& options,
                            NumpyRandom& random);

}  // namespace trireme::data
