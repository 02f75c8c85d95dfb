#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

struct WordCountingOptions {
  std::vector<std::string> inputs;
  TextReaderOptions reader;
  std::int64_t max_words = 10'000'000;  ///< distinct words kept at a time
  std::vector<data::SplitStep> splits;  ///< that cut the words
};

struct CountedWords {
  std::vector<std::pair<std::string, std::int64_t>> words;  ///< sorted by their bytes
  std::int64_t text_bytes = 0;
  std::int64_t occurrences = 0;  ///< occurrences of the kept words
  std::int64_t forgotten = 0;    ///< occurrences of other words
};

/// Counts the words of texts, with all threads of `pool`. Memory is bounded: whenever there are
/// more than `max_words`, the rarest are dropped until half of them are left. The result does not depend on the
/// threads. `progress` is called periodically with the bytes read and the total. Throws like `TextReader` and
/// `text_of`.
CountedWords count_words(const Files& files, WordCountingOptions options, ThreadPool& pool,
                         const ByteProgress& progress);

}  // namespace trireme::prepare
