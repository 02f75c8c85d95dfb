#pragma once

#include <cstdint>
#include <span>

#include "src/data/dataset/bert/bert_vocabulary.hpp"
#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {

/// Whole-word masking as in Megatron-LM: sets `labels` to the token at each masked position and to -1 elsewhere, and
/// replaces masked `tokens` by [MASK] (80 %), a token drawn from the vocabulary (10 %), or leaves them (10 %).
///
/// A word is a piece and the "##" pieces after it, excluding [CLS] and [SEP]; a "##" piece after [SEP] continues the
/// word before it. Words are tried in shuffled order. Each begins an n-gram of 1, 2 or 3 words, n drawn with p
/// proportional to 1/n, and reduced while the n-gram exceeds the budget. An n-gram that touches a masked one is
/// skipped. The budget is min(probability · target_length, max(1, round(probability · tokens))), compared as a
/// fraction: short targets mask nothing.
void mask_words(std::span<std::int32_t> tokens, std::span<std::int32_t> labels, std::int64_t target_length,
                double probability, const BertVocabulary& vocabulary, NumpyRandom& random);

}  // namespace trireme::data
