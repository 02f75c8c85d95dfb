#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "src/base/hash.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/corpora.hpp"
#include "src/tensor/dtype.hpp"
#include "src/tensor/shape.hpp"

namespace trireme::io {

namespace h5 {
class File;
}
using prepare::CorpusContents;

/// Appends ids to `packed` in the type of the vocabulary, and returns the largest; -1 if none. Throws DataError for an
/// id outside the vocabulary.
std::int64_t pack_tokens(std::span<const std::int32_t> ids, std::int64_t vocabulary_size,
                         std::vector<std::byte>& packed);

/// Creates an array of bytes.
void write_bytes(h5::File& file, const std::string& path, const std::string& bytes, const Shape& shape);
/// Writes the attributes of a corpus or view; `info.content_digest` is that of its tables.
void write_corpus_header(h5::File& file, const char* format, const data::CorpusInfo& info);

/// Begins a corpus (format: io/README.md) at `path`, in constant memory. Throws IoError or Hdf5Error.
std::unique_ptr<prepare::CorpusFrame> begin_corpus_file(const std::string& path, const data::Tokenizer& tokenizer,
                                                        CorpusContents contents);

/// int64 numbers spooled to disk until their count is known.
class SpooledNumbers {
 public:
  explicit SpooledNumbers(const std::string& path) : spool_(path) {}
  void push(std::int64_t number) {
    recent_.push_back(number);
    if (recent_.size() == (1 << 16)) finish();
  }
  /// Returns the file with all numbers so far.
  const Spool& finish() {
    spool_.append(recent_.data(), recent_.size() * sizeof(recent_[0]));
    digest_.update(recent_.data(), recent_.size() * sizeof(recent_[0]));
    recent_.clear();
    return spool_;
  }
  /// Digest of the numbers that `finish` spooled.
  std::string digest() const { return digest_.hex(); }

 private:
  Spool spool_;
  Digest digest_;
  std::vector<std::int64_t> recent_;
};

/// Writes a corpus (format: io/README.md) document by document, in constant memory. A contiguous dataset cannot grow,
/// so tokens and offsets are spooled first. This doubles the disk space until `finish` has copied them. The file
/// replaces its predecessor once complete and on disk; after a failure the predecessor stays.
class CorpusWriter {
 public:
  /// Throws IoError immediately if `path` cannot be written.
  CorpusWriter(const std::string& path, const data::Tokenizer& tokenizer);

  /// Adds tokens to the current document. Throws DataError for an id outside the vocabulary.
  void append(std::span<const std::int32_t> ids);
  /// Ends the current sentence; an empty one is ignored. After one call the entire corpus must consist of sentences:
  /// every document ends with one.
  void end_sentence();
  /// Ends the current document, which may be empty.
  void end_document();
  /// Makes a corpus in which only tokens given to `learn` are learned. Before any document.
  void begin_learned_ranges();
  /// Marks tokens of the corpus as learned, after all that were marked before.
  void learn(data::LearnedRange range);
  /// Writes the file. Nothing may be added later.
  void finish();

  std::int64_t vocabulary_size() const { return tokenizer_.vocabulary_size(); }
  std::int64_t documents() const { return documents_; }
  std::int64_t token_count() const { return token_count_; }
  std::int64_t sentences() const { return sentence_count_; }
  /// Number of tokens in the current document.
  std::int64_t document_tokens() const { return token_count_ - document_begin_; }

 private:
  void flush_block();
  void copy_tokens(const prepare::TokenBlocks& blocks) const;

  const data::Tokenizer& tokenizer_;
  DType dtype_;
  TemporaryFile file_;
  Spool tokens_;
  SpooledNumbers offsets_;
  std::optional<SpooledNumbers> sentences_;
  std::optional<SpooledNumbers> learned_;
  std::vector<std::byte> block_;  // tokens not yet spooled, at most corpus_block_tokens
  std::string block_digests_;
  std::int64_t token_count_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t document_begin_ = 0;
  std::int64_t sentence_begin_ = 0;
  std::int64_t sentence_count_ = 0;
  std::int64_t learned_count_ = 0;
  std::int64_t max_id_ = -1;
};

}  // namespace trireme::io
