#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/data/dataset/bert/bert_sample.hpp"
#include "tests/fakes/memory_token_store.hpp"

namespace trireme::test {

using Sentences = std::vector<std::vector<std::int32_t>>;

/// A corpus of documents, each a list of sentences.
inline std::shared_ptr<const data::MemoryTokenStore> sentence_store(const std::vector<Sentences>& documents,
                                                                    std::int64_t vocabulary_size = 30524) {
  Sentences texts;
  std::vector<std::int64_t> offsets{0};
  for (const Sentences& document : documents) {
    auto& text = texts.emplace_back();
    for (const auto& sentence : document) {
      text.insert(text.end(), sentence.begin(), sentence.end());
      offsets.push_back(offsets.back() + static_cast<std::int64_t>(sentence.size()));
    }
  }
  data::CorpusInfo info;
  info.tokenizer = "wordpiece";
  info.tokenizer_digest = "c0";
  info.vocabulary_size = vocabulary_size;
  return std::make_shared<const data::MemoryTokenStore>(info, texts, std::move(offsets));
}

/// A corpus with sentences of the given sizes, by document; the ids cycle upwards from 104.
inline std::shared_ptr<const data::MemoryTokenStore> sentence_store_of_sizes(
    const std::vector<std::vector<std::size_t>>& sizes) {
  std::vector<Sentences> documents;
  std::int32_t next = 0;
  for (const auto& sentences : sizes) {
    Sentences& document = documents.emplace_back();
    for (const std::size_t size : sentences) {
      auto& sentence = document.emplace_back();
      for (std::size_t i = 0; i < size; ++i) sentence.push_back(104 + next++ % 30'000);
    }
  }
  return sentence_store(documents);
}

/// The ids of BERT's published vocabulary; only `continuations` continue a word.
inline data::BertVocabulary bert_vocabulary(const std::vector<std::int32_t>& continuations = {}) {
  data::BertVocabulary vocabulary{30524, 0, 101, 102, 103, std::vector<bool>(30524)};
  for (const std::int32_t id : continuations) vocabulary.continues_word[static_cast<std::size_t>(id)] = true;
  return vocabulary;
}

}  // namespace trireme::test
