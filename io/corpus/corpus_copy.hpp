#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"

namespace trireme::io {

/// Copies tokens of other corpora, checking each block first.
class CorpusCopy final : public prepare::CorpusSink {
 public:
  CorpusCopy(const std::string& path, const data::CorpusInfo& info);

  void take_from(const prepare::CorpusSource& store) override { tokens_.emplace(store); }
  void append(std::int64_t begin, std::int64_t end) override;
  void end_sentence() override { writer_.end_sentence(); }
  void end_document() override { writer_.end_document(); }
  std::int64_t documents() const override { return writer_.documents(); }
  prepare::CorpusSize finish() override;

 private:
  std::unique_ptr<data::Tokenizer> tokenizer_;
  CorpusWriter writer_;
  std::optional<VerifiedTokens> tokens_;
  std::vector<std::int32_t> ids_;
};

}  // namespace trireme::io
