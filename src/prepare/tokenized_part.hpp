#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::prepare {

// Tokens of an input range (`InputRange`), in a separate file until all are joined into a corpus.

/// Counts of special cases in the text.
struct CorpusTextCounts {
  std::int64_t text_bytes = 0;  ///< bytes of the documents, without the JSON around them
  std::int64_t empty_documents = 0;
  std::int64_t forced_cuts = 0;  ///< see `CutPoint`
  std::int64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines = {};  ///< faults of the first few
  data::SpellingCounts special_tokens = {};       ///< names of special tokens occurring as ordinary text

  CorpusTextCounts& operator+=(const CorpusTextCounts& other);
};

/// Content of a part.
struct PartSummary {
  std::int64_t tokens = 0;
  std::int64_t ends = 0;       ///< documents that end in this part
  std::int64_t first_end = 0;  ///< tokens up to the end of the first of them
  std::int64_t last_end = 0;   ///< and of the last
  std::int64_t sentence_ends = 0;
  std::int64_t max_id = -1;
  bool begins_inside_document = false;
  CorpusTextCounts counts;
};

/// Array of a part.
enum class PartSection {
  tokens,        ///< in the type of the vocabulary, as in a corpus
  ends,          ///< ends of documents: int64, counted from the beginning of the part
  sentence_ends  ///< likewise; a first value of 0 ends the previous part's sentence, if this part begins with a new one
                 ///< inside a document
};

/// Writes a part. The file is renamed into place once complete and on disk.
class PartWriter {
 public:
  virtual ~PartWriter() = default;
  /// Throws DataError for an id that is not in the vocabulary.
  virtual void append(std::span<const std::int32_t> ids) = 0;
  /// Ends the current sentence; an empty one is ignored, unless it ends the sentence of an earlier part.
  virtual void end_sentence() = 0;
  virtual void end_document() = 0;
  /// Content so far.
  virtual const PartSummary& summary() const = 0;
  virtual void finish(const CorpusTextCounts& counts) = 0;

  /// Number of tokens in the current document.
  std::int64_t document_tokens() const { return summary().tokens - summary().last_end; }
  /// Returns whether the current document began in an earlier part.
  bool inside_first() const { return summary().begins_inside_document && summary().ends == 0; }
};

/// Reads one section of a part sequentially, in constant memory. Throws DataError if the file is damaged.
class PartReader {
 public:
  virtual ~PartReader() = default;
  virtual const PartSummary& summary() const = 0;
  /// Fills `out` with the next bytes of the section and returns their number; fewer only at its end. Reading to the end
  /// verifies the digest.
  virtual std::size_t read(std::span<std::byte> out) = 0;
  /// End of sentence `i`, without verifying the digest.
  virtual std::int64_t sentence_end(std::int64_t i) const = 0;
};

}  // namespace trireme::prepare
