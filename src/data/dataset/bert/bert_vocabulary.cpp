#include "src/data/dataset/bert/bert_vocabulary.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::data {

BertVocabulary bert_vocabulary_of(std::span<const std::string> tokens) {
  const auto id_of = [&](const char* token) {
    const auto found = std::ranges::find(tokens, token);
    TRIREME_CHECK(found != tokens.end(), DataError,
                  "the vocabulary of {} tokens has no {}, which BERT's samples need. Try BERT's own vocabulary",
                  tokens.size(), token);
    return static_cast<std::int32_t>(found - tokens.begin());
  };
  BertVocabulary vocabulary{std::ssize(tokens), id_of("[PAD]"), id_of("[CLS]"), id_of("[SEP]"), id_of("[MASK]"), {}};
  vocabulary.continues_word.reserve(tokens.size());
  for (const std::string& token : tokens) vocabulary.continues_word.push_back(token.starts_with("##"));
  return vocabulary;
}

}  // namespace trireme::data
