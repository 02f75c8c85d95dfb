#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/text_reader.hpp"
#include "src/base/thread_pool.hpp"
#include "src/data/tokenizer.hpp"

namespace trireme::io {

struct CorpusBuildOptions {
  std::vector<std::string> inputs;
  std::string output;
  TextReaderOptions reader;
  bool split_sentences = false;         ///< keep sentences, too; then `reader.can_cut` must be `SentenceSplitter`'s
  bool append_end_of_document = false;  ///< after every document that is not empty
  bool skip_bad_lines = false;          ///< of JSON; otherwise the first one is an error
  std::int64_t greatest_bad_lines = 1000;
};

struct CorpusBuildReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t sentences = 0;   ///< 0 where the text was not split
  std::int64_t text_bytes = 0;  ///< of the documents, without the JSON round them
  std::int64_t empty_documents = 0;
  std::int64_t cut_runs = 0;  ///< forced cuts, see `TextReaderOptions::greatest_run_bytes`
  std::int64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines;  ///< what was wrong with the first few
};

/// Tokenizes text into a corpus. Pieces of the input are encoded by all threads of `pool`, some at a time, and written
/// in order, so that the result does not depend on the threads and memory does not grow with the input. Documents
/// without a byte are left out and counted. `progress` is called now and then with the bytes read so far and those
/// there are. On failure nothing stands under the name of the output that did not before. Throws DataError (input that
/// cannot be read as text, too many bad lines, nothing to write), ConfigError (the output is one of the inputs),
/// IoError, Hdf5Error.
CorpusBuildReport build_corpus(const CorpusBuildOptions& options, const data::Tokenizer& tokenizer, ThreadPool& pool,
                               const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace trireme::io
