#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/base/thread_pool.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/input_ranges.hpp"

namespace trireme::prepare {

/// How text becomes tokens.
struct CorpusTextOptions {
  TextReaderOptions reader;
  bool split_sentences = false;         ///< keep sentences, too; then `reader.can_cut` must be `SentenceSplitter`'s
  bool append_end_of_document = false;  ///< after every document that is not empty
  bool skip_bad_lines = false;          ///< skip bad lines of JSON; otherwise the first one is an error
  std::int64_t max_bad_lines = 1000;
};

/// Tokenizes a range of the input into a part, the file `path`. All threads of `pool` encode pieces of text, some at a
/// time, and the results are written in order. So the bytes do not depend on the threads, and memory does not grow with
/// the range. `progress` is called now and then with the bytes read so far. Throws DataError (text that cannot be read,
/// too many bad lines), IoError.
void tokenize_range(const Files& files, const InputRange& range, const CorpusTextOptions& options,
                    const data::Tokenizer& tokenizer, ThreadPool& pool, const std::string& path,
                    const std::function<void(std::int64_t)>& progress);

}  // namespace trireme::prepare
