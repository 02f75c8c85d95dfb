#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "src/data/tokenizer/tokenizer.hpp"

namespace trireme::io {

/// Content of a corpus whose size is known. Each function fills the given bytes with those that follow its last ones.
/// All functions are read to their ends, tokens first, in this order.
struct CorpusContents {
  using Next = std::function<void(std::span<std::byte>)>;
  std::int64_t tokens = 0;
  std::int64_t max_id = -1;
  Next next_tokens;  ///< a block of `corpus_block_tokens` at a time, in the type of the vocabulary
  std::int64_t documents = 0;
  Next next_document_offsets;  ///< documents + 1 int64
  std::int64_t sentences = 0;
  Next next_sentence_offsets = nullptr;  ///< sentences + 1 int64; never called where there are no sentences
};

/// Writes a whole corpus (format: io/README.md) as `path`, in memory that does not grow with it. Throws
/// IoError or Hdf5Error.
void write_corpus_file(const std::string& path, const data::Tokenizer& tokenizer, const CorpusContents& contents);

}  // namespace trireme::io
