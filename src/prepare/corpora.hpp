#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/data/dataset/token_store.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/tokenized_part.hpp"

namespace trireme::prepare {

/// Kind of a corpus made from others: a copy stores its own tokens, a view refers to theirs (io/README.md).
enum class CorpusKind { copy, view };

/// Size of a written corpus.
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
  /// Adds tokens [begin, end) of the selected corpus.
  virtual void append(std::int64_t begin, std::int64_t end) = 0;
  virtual void end_sentence() = 0;
  virtual void end_document() = 0;
  virtual std::int64_t documents() const = 0;
  /// Renames the file to its final name.
  virtual CorpusSize finish() = 0;
};

/// Content of a corpus whose size is known. Each function fills the given bytes with the next ones of its stream. All
/// streams are read to their ends in this order.
struct CorpusContents {
  using Next = std::function<void(std::span<std::byte>)>;
  std::int64_t tokens = 0;
  std::int64_t max_id = -1;
  Next next_tokens;  ///< a block at a time, in the type of the vocabulary
  std::int64_t documents = 0;
  Next next_document_offsets;  ///< documents + 1 int64
  std::int64_t sentences = 0;
  Next next_sentence_offsets = nullptr;  ///< sentences + 1 int64; never called without sentences
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
  /// Writes a complete corpus to `path`, in constant memory.
  virtual void write(const std::string& path, const data::Tokenizer& tokenizer,
                     const CorpusContents& contents) const = 0;

  /// Starts the part at `path`.
  virtual std::unique_ptr<PartWriter> create_part(const std::string& path, std::int64_t vocabulary_size,
                                                  bool begins_inside_document) const = 0;
  /// Opens a section of a part for reading from element `first` on.
  virtual std::unique_ptr<PartReader> open_part(const std::string& path, PartSection section,
                                                std::int64_t first) const = 0;
};

}  // namespace trireme::prepare
