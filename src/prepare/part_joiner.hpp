#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/prepare/corpora.hpp"
#include "src/prepare/corpus_builder.hpp"
#include "src/prepare/token_copy.hpp"

namespace trireme::prepare {

/// Joins parts into one corpus, in their order.
class PartJoiner {
 public:
  /// The arguments must outlive it.
  PartJoiner(const Corpora& corpora, const std::vector<std::string>& paths, const CorpusTextOptions& options)
      : corpora_(corpora), paths_(paths), options_(options) {}

  /// Adds the next part, which must be complete. Throws DataError if it is damaged.
  void add_next();
  std::size_t parts() const { return parts_.size(); }
  /// Place of the last part that was added.
  TakenTokens last_taken() const { return {parts_.back().first_token, parts_.back().begin}; }
  /// Tokens of all parts so far.
  std::int64_t tokens() const { return contents_.tokens; }
  CorpusBuildReport report() const;

  /// Begins the corpus of these parts at `path`; `tokenizer` and this object must outlive it.
  std::unique_ptr<CorpusFrame> begin(const std::string& path, const data::Tokenizer& tokenizer);

 private:
  /// Stretch of the corpus that comes from one part.
  struct JoinedPart {
    PartSummary part;
    std::int64_t first_token = 0;  // 1 if an empty document's end-of-document token is left out
    std::int64_t first_end = 0;    // 1 if that document's end is
    std::int64_t first_sentence_end = 0;
    std::int64_t begin = 0;  // in the corpus
  };

  CorpusContents::Next section(PartSection section, std::int64_t JoinedPart::*first) const;

  const Corpora& corpora_;
  const std::vector<std::string>& paths_;
  const CorpusTextOptions& options_;
  std::vector<JoinedPart> parts_;
  std::int64_t carried_ = 0;  // tokens of the document continued in the next part
  std::int64_t last_sentence_end_ = 0;
  CorpusContents contents_;
  CorpusTextCounts counts_;
};

}  // namespace trireme::prepare
