#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/input_parts.hpp"
#include "io/mapped_file.hpp"
#include "src/base/thread_pool.hpp"
#include "src/data/tokenizer.hpp"

namespace trireme::io {

/// How text becomes tokens.
struct CorpusTextOptions {
  TextReaderOptions reader;
  bool split_sentences = false;         ///< keep sentences, too; then `reader.can_cut` must be `SentenceSplitter`'s
  bool append_end_of_document = false;  ///< after every document that is not empty
  bool skip_bad_lines = false;          ///< of JSON; otherwise the first one is an error
  std::int64_t greatest_bad_lines = 1000;
};

/// What was met in the text.
struct CorpusTextCounts {
  std::int64_t text_bytes = 0;  ///< of the documents, without the JSON round them
  std::int64_t empty_documents = 0;
  std::int64_t cut_runs = 0;  ///< forced cuts, see `TextReaderOptions::greatest_run_bytes`
  std::int64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines = {};  ///< what was wrong with the first few

  CorpusTextCounts& operator+=(const CorpusTextCounts& other);
};

/// Tokenizes a part of the input into the file `path`, which gets its name when it is whole and on the disk. Pieces of
/// text are encoded by all threads of `pool`, some at a time, and written in order, so that the bytes do not depend on
/// the threads and memory does not grow with the part. `progress` is called now and then with the bytes read so far.
/// Throws DataError (text that cannot be read, too many bad lines), IoError.
void tokenize_part(const InputPart& part, const CorpusTextOptions& options, const data::Tokenizer& tokenizer,
                   ThreadPool& pool, const std::string& path, const std::function<void(std::int64_t)>& progress);

/// What `tokenize_part` wrote: tokens as they lie in a corpus, then where each document and each sentence ends. Throws
/// IoError or, where the file is not what was written, DataError.
class CorpusPart {
 public:
  explicit CorpusPart(std::string path);

  struct Summary {
    std::int64_t tokens = 0;
    std::int64_t ends = 0;       ///< documents that end in this part
    std::int64_t first_end = 0;  ///< tokens up to the end of the first of them
    std::int64_t last_end = 0;   ///< and of the last
    std::int64_t sentence_ends = 0;
    std::int64_t greatest_id = -1;
    bool begins_inside_document = false;
    CorpusTextCounts counts;
  };
  const Summary& summary() const { return summary_; }

  /// In the type of the vocabulary; checked against their digest first.
  std::span<const std::byte> tokens() const;
  /// int64, counted from the beginning of the part; checked likewise.
  std::span<const std::byte> ends() const;
  /// Likewise. The first is 0 where the part begins with a sentence inside a document: that ends the one before.
  std::span<const std::byte> sentence_ends() const;

 private:
  std::span<const std::byte> checked(std::size_t begin, std::size_t size_bytes, const std::string& expected) const;
  std::string path_;
  MappedFile file_;
  Summary summary_;
  std::size_t tokens_bytes_ = 0;
  std::string tokens_digest_;
  std::string ends_digest_;
  std::string sentences_digest_;
};

}  // namespace trireme::io
