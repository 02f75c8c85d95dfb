#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/data/dataset/token_store.hpp"
#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::prepare {

// Tokens of an input range (`InputRange`), in a separate file until all are joined into a corpus.

/// Counts of special cases in the text.
struct CorpusTextCounts {
  std::int64_t text_bytes = 0;  ///< bytes of the documents, without the JSON around them
  std::int64_t empty_documents = 0;
  std::int64_t forced_cuts = 0;  ///< see `CutPoint`
  std::int64_t bad_lines = 0;
  std::int64_t learned_tokens = 0;                ///< tokens of conversations that are learned
  std::int64_t learned_stops = 0;                 ///< learned ranges with a token that ends generation
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
  std::int64_t learned_ranges = 0;
  std::int64_t max_id = -1;
  bool begins_inside_document = false;
  CorpusTextCounts counts;
};

/// Array of a part.
enum class PartSection {
  tokens,         ///< in the type of the vocabulary, as in a corpus
  ends,           ///< ends of documents: int64, counted from the beginning of the part
  sentence_ends,  ///< likewise; a first value of 0 ends the previous part's sentence, if this part begins with a new
                  ///< one inside a document
  learned_ranges  ///< `data::LearnedRange`, likewise
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
  /// Marks tokens of the part as learned, after all that were marked before.
  virtual void learn(data::LearnedRange range) = 0;
  /// Content so far.
  virtual const PartSummary& summary() const = 0;
  virtual void finish(const CorpusTextCounts& counts) = 0;

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

/// Kind of a corpus made from others: a copy stores its own tokens, a view refers to theirs (io/README.md).
enum class CorpusKind { copy, view };

struct CorpusSize {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

/// Corpus whose tokens lie in blocks with digests, its own or, for a view, those of other corpora.
class CorpusSource : public data::TokenStore {
 public:
  /// Corpora that hold the tokens: this one, or the sources of a view.
  virtual std::vector<const data::TokenStore*> token_owners() const = 0;

  /// Position of a token, and the number of contiguous tokens from there within the block.
  struct Stretch {
    std::int64_t source;  ///< index in `token_owners`
    std::int64_t begin;   ///< first token in the source
    std::int64_t block;   ///< index among the blocks of all sources
    std::int64_t size;    ///< tokens
  };
  virtual Stretch stretch_at(std::int64_t token) const = 0;
  /// Reads one block. Throws DataError if it differs from its digest; returns its greatest id.
  virtual std::int64_t verify_block(std::int64_t block) const = 0;
  /// Releases the block's memory.
  virtual void release_block(std::int64_t block) const = 0;
};

/// Corpus assembled from documents of others. All members throw IoError, DataError or Hdf5Error.
class CorpusSink {
 public:
  virtual ~CorpusSink() = default;
  /// Selects the corpus that `append` takes tokens from. It must outlive the last such call.
  virtual void take_from(const CorpusSource& source) = 0;
  /// Adds tokens [begin, end) of the selected corpus; those that are learned there are learned here.
  virtual void append(std::int64_t begin, std::int64_t end) = 0;
  virtual void end_sentence() = 0;
  virtual void end_document() = 0;
  virtual std::int64_t documents() const = 0;
  /// Renames the file to its final name.
  virtual CorpusSize finish() = 0;
};

/// Content of a corpus whose size is known, besides the tokens themselves. Each function fills the given bytes with the
/// next ones of its stream. All streams are read to their ends in this order.
struct CorpusContents {
  using Next = std::function<void(std::span<std::byte>)>;
  std::int64_t tokens = 0;
  std::int64_t max_id = -1;
  std::int64_t documents = 0;
  Next next_document_offsets = nullptr;  ///< documents + 1 int64
  std::int64_t sentences = 0;
  Next next_sentence_offsets = nullptr;             ///< sentences + 1 int64; never called without sentences
  std::optional<std::int64_t> learned_ranges = {};  ///< without a value all tokens are learned
  Next next_learned_ranges = nullptr;               ///< as many `data::LearnedRange`
};

/// Place of a corpus's tokens in its file, in blocks of which each but the last has as many.
struct TokenBlocks {
  std::int64_t begin = 0;        ///< first byte
  std::int64_t token_bytes = 0;  ///< bytes of a token, in the type of the vocabulary
  std::int64_t block_tokens = 0;
  std::int64_t tokens = 0;  ///< in the corpus
};

/// Corpus that is being written.
class CorpusFrame {
 public:
  virtual ~CorpusFrame() = default;
  /// Ranks write these blocks to the file themselves.
  virtual TokenBlocks blocks() const = 0;
  /// Completes the file. `block_digests` are the `digest` of each block, one after another.
  virtual void finish(const std::string& block_digests) = 0;
  /// Then copies all of it but the tokens to the file `target`, which has them at the same position.
  virtual void copy_around_tokens(const std::string& target) const = 0;
};

/// Corpora in files, and their parts in progress.
class Corpora {
 public:
  virtual ~Corpora() = default;
  /// Throws IoError, or DataError if the file is not a corpus.
  virtual std::unique_ptr<CorpusSource> open(const std::string& path) const = 0;
  /// Starts a corpus of documents from corpora like `info`. During the sink's lifetime a lock beside the file excludes
  /// other jobs; another job's lock is an EnvironmentError.
  virtual std::unique_ptr<CorpusSink> create(CorpusKind kind, const std::string& path,
                                             const data::CorpusInfo& info) const = 0;
  /// Begins a corpus at `path`, in constant memory. `tokenizer` must outlive it.
  virtual std::unique_ptr<CorpusFrame> begin(const std::string& path, const data::Tokenizer& tokenizer,
                                             CorpusContents contents) const = 0;

  virtual std::unique_ptr<PartWriter> create_part(const std::string& path, std::int64_t vocabulary_size,
                                                  bool begins_inside_document) const = 0;
  /// Opens a section of a part for reading from element `first` on.
  virtual std::unique_ptr<PartReader> open_part(const std::string& path, PartSection section,
                                                std::int64_t first) const = 0;
};

}  // namespace trireme::prepare
