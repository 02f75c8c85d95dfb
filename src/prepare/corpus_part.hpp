#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/posix/file_handle.hpp"
#include "src/base/hash.hpp"
#include "src/base/thread_pool.hpp"
#include "src/data/tokenizer/special_tokens.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/input_parts.hpp"

namespace trireme::io {

/// How text becomes tokens.
struct CorpusTextOptions {
  TextReaderOptions reader;
  bool split_sentences = false;         ///< keep sentences, too; then `reader.can_cut` must be `SentenceSplitter`'s
  bool append_end_of_document = false;  ///< after every document that is not empty
  bool skip_bad_lines = false;          ///< skip bad lines of JSON; otherwise the first one is an error
  std::int64_t max_bad_lines = 1000;
};

/// Counts of special cases in the text.
struct CorpusTextCounts {
  std::int64_t text_bytes = 0;  ///< bytes of the documents, without the JSON around them
  std::int64_t empty_documents = 0;
  std::int64_t cut_runs = 0;  ///< forced cuts, see `TextReaderOptions::max_run_bytes`
  std::int64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines = {};  ///< faults of the first few
  data::SpellingCounts special_tokens = {};       ///< whose names the text holds, as ordinary text

  CorpusTextCounts& operator+=(const CorpusTextCounts& other);
};

/// Tokenizes a part of the input into the file `path`, which gets its name when it is whole and on the disk. All
/// threads of `pool` encode pieces of text, some at a time, and the results are written in order. So the bytes do not
/// depend on the threads, and memory does not grow with the part. `progress` is called now and then with the bytes read
/// so far. Throws DataError (text that cannot be read, too many bad lines), IoError.
void tokenize_part(const InputPart& part, const CorpusTextOptions& options, const data::Tokenizer& tokenizer,
                   ThreadPool& pool, const std::string& path, const std::function<void(std::int64_t)>& progress);

/// Output of `tokenize_part`: tokens as in a corpus, then the end of each document and of each sentence. Reads one of
/// these sections from its beginning, in memory that does not grow with it. Throws IoError, or DataError where the file
/// is damaged.
class CorpusPart {
 public:
  enum class Section {
    tokens,        ///< in the type of the vocabulary
    ends,          ///< int64, counted from the beginning of the part
    sentence_ends  ///< likewise; the first is 0 where the part begins with a sentence inside a document: that ends the
                   ///< one before
  };
  explicit CorpusPart(std::string path, Section section = Section::tokens);

  struct Summary {
    std::int64_t tokens = 0;
    std::int64_t ends = 0;       ///< documents that end in this part
    std::int64_t first_end = 0;  ///< tokens up to the end of the first of them
    std::int64_t last_end = 0;   ///< and of the last
    std::int64_t sentence_ends = 0;
    std::int64_t max_id = -1;
    bool begins_inside_document = false;
    CorpusTextCounts counts;
  };
  const Summary& summary() const { return summary_; }

  /// Fills `out` with the next bytes of the section and returns how many; fewer only at its end. Whoever reads all of
  /// it has had it checked against its digest.
  std::size_t read(std::span<std::byte> out);
  /// End of sentence `i`, not checked here: the readers of the section check it.
  std::int64_t sentence_end(std::int64_t i) const;

 private:
  std::string path_;
  Descriptor file_;
  Summary summary_;
  std::int64_t sentences_begin_ = 0;
  std::int64_t position_ = 0;  // in the file, of what is read next
  std::int64_t end_ = 0;       // end of the section
  Digest digest_;              // digest of the bytes read so far
  std::string expected_digest_;
};

}  // namespace trireme::io
