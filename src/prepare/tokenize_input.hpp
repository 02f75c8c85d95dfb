#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/base/thread_pool.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/input_ranges.hpp"

namespace trireme::prepare {

/// Options of tokenization.
struct CorpusTextOptions {
  TextReaderOptions reader;
  bool split_sentences = false;         ///< also keep sentences; `reader.can_cut` must then be `SentenceSplitter`'s
  bool append_end_of_document = false;  ///< after every non-empty document
  bool skip_bad_lines = false;          ///< skip bad lines of JSON; otherwise the first one is an error
  std::int64_t max_bad_lines = 1000;
};

/// Tokenizes an input range into a part, the file `path`. All threads of `pool` encode pieces of text in batches, and
/// the results are written in order. The output is thus independent of the threads, and memory of the range. `progress`
/// is called periodically with the bytes read so far. Throws DataError (unreadable text, too many bad lines), IoError.
void tokenize_range(const Files& files, const InputRange& range, const CorpusTextOptions& options,
                    const data::Tokenizer& tokenizer, ThreadPool& pool, const std::string& path,
                    const std::function<void(std::int64_t)>& progress);

}  // namespace trireme::prepare
