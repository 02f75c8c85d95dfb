#include "src/app/job/bert_vocabulary.hpp"

#include "src/base/check.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::app {

data::BertVocabulary bert_vocabulary(const data::TokenStore& corpus) {
  TRIREME_CHECK(corpus.info().tokenizer == "wordpiece", DataError,
                "{} was made by tokenizer {}, but BERT reads WordPiece. Try to build it again with --tokenizer "
                "wordpiece --split-sentences",
                corpus.name(), corpus.info().tokenizer);
  return data::bert_vocabulary_of(data::wordpiece_from_payload(corpus.info().tokenizer_payload).tokens);
}

}  // namespace trireme::app
