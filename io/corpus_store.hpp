#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/mapped_file.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/data/token_store.hpp"

namespace trireme::io {

/// A corpus in an HDF5 file, memory-mapped: to open it takes one pass over the offsets, and all processes of a machine
/// share its pages. Version 1 of the format:
///
///   /tokens             uint16 [tokens], or uint32 where the vocabulary has more than 65,536 ids; contiguous
///   /document_offsets   int64 [documents + 1]
///   /sentence_offsets   int64 [sentences + 1], only where the text was split into sentences; holds each
///                       document offset
///   /block_digests      uint8 [blocks, 32]: digest of each 1,048,576 tokens, in hexadecimal digits
///   /tokenizer_payload  uint8 [bytes]: the tokenizer's definition
///   attributes of /     format "trireme-corpus", format_version, tokenizer, tokenizer_digest, vocabulary_size,
///                       end_of_document, greatest_id and table_digest (of the bytes of document offsets, sentence
///                       offsets, then block digests; it changes with any token, and is `info().content_digest`)
///
/// Everything is little-endian; digests are XXH3 of 128 bits.
class CorpusStore final : public data::TokenStore {
 public:
  /// Checks everything but the tokens themselves, which are only read as they are asked for. Throws IoError where the
  /// file cannot be opened, DataError where it is not a whole corpus.
  explicit CorpusStore(const std::string& path);

  const std::string& name() const override { return path_; }
  const data::CorpusInfo& info() const override { return info_; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  std::span<const std::int64_t> sentence_offsets() const override { return sentences_; }
  data::TokenSpan tokens() const override { return tokens_; }

  /// Reads every token, on all ranks of `comm`, which have opened the same corpus, and all threads of `pool` together.
  /// Throws on all ranks DataError naming the first block that is not as it was written, or an id that is not in the
  /// vocabulary.
  void verify(Communicator& comm, ThreadPool& pool) const;
  /// Alone, on one thread.
  void verify() const;
  /// Number of blocks of 1,048,576 tokens.
  std::int64_t blocks() const;
  /// Reads one block. Throws DataError where it is not as it was written; returns its greatest id.
  std::int64_t verify_block(std::int64_t block) const;
  /// The process gives back the memory that reading the block took.
  void release_block(std::int64_t block) const;

 private:
  void read();
  std::int64_t verify_blocks(std::int64_t begin, std::int64_t end, ThreadPool& pool) const;
  void verify_header(std::int64_t greatest_id) const;
  std::string path_;
  data::CorpusInfo info_;
  std::string block_digests_;
  std::unique_ptr<MappedFile> mapping_;
  std::span<const std::int64_t> offsets_;
  std::span<const std::int64_t> sentences_;
  data::TokenSpan tokens_;
};

}  // namespace trireme::io
