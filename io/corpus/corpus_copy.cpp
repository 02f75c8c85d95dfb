#include "io/corpus/corpus_copy.hpp"

namespace trireme::io {

CorpusCopy::CorpusCopy(const std::string& path, const data::CorpusInfo& info)
    : tokenizer_(data::tokenizer_from_payload(info.tokenizer, info.tokenizer_payload)), writer_(path, *tokenizer_) {}

void CorpusCopy::append(std::int64_t begin, std::int64_t end) {
  tokens_->read(begin, end, [&](const auto& tokens) {
    ids_.assign(tokens.begin(), tokens.end());
    writer_.append(ids_);
  });
}

prepare::CorpusSize CorpusCopy::finish() {
  writer_.finish();
  return {writer_.documents(), writer_.token_count()};
}

}  // namespace trireme::io
