#pragma once

#include "src/data/dataset/bert/bert_sample.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::app {

/// Returns the facts of a corpus' vocabulary that BERT's samples depend on. Throws DataError if its tokenizer is not
/// WordPiece, or lacks one of BERT's special tokens.
data::BertVocabulary bert_vocabulary(const data::TokenStore& corpus);

}  // namespace trireme::app
