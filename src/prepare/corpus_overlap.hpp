#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/data/dedup/ngrams.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

struct CorpusOverlapOptions {
  std::vector<std::string> inputs;  ///< the corpus, as text
  std::vector<std::string> tests;
  TextReaderOptions reader;  ///< options of the corpus' reader
  TextReaderOptions test_reader;
  int n = 8;
  std::string output;  ///< the corpus without overlapping passages, JSON lines; empty: none
  data::RemovalOptions removal;
};

struct TestOverlap {
  std::int64_t documents = 0;
  std::int64_t ngrams = 0;       ///< distinct n-grams
  std::int64_t overlapping = 0;  ///< n-grams of these that occur in the corpus
};

/// Totals over all ranks.
struct CorpusOverlapReport {
  std::vector<TestOverlap> tests;  ///< in the order of the options
  std::int64_t documents = 0;
  std::int64_t input_bytes = 0;         ///< bytes of the documents' texts
  std::int64_t affected_documents = 0;  ///< with an n-gram of some test
  std::int64_t removed_documents = 0;   ///< documents removed entirely
  std::int64_t written_documents = 0;
};

/// Counts the distinct word n-grams of each test that occur in a corpus (data::NgramReader; none crosses the end of a
/// document). With an output it also copies the corpus, in order, without the passages that overlap with a test
/// (data::pieces_without). Each remaining piece of a document becomes a document; documents without overlap are copied
/// byte for byte.
///
/// N-grams are compared by 64-bit hashes. Between t distinct ones of a test and c of the corpus, a collision has
/// probability t x c / 2^64. Collective; the result does not depend on ranks and threads. Memory grows with the tests,
/// not with the corpus. On failure the output is unchanged. Throws DataError (unreadable input, a test without an
/// n-gram), ConfigError, IoError.
CorpusOverlapReport corpus_overlap(const Files& files, const CorpusOverlapOptions& options, Communicator& comm,
                                   ThreadPool& pool, const ByteProgress& progress);

}  // namespace trireme::prepare
