#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/text_reader.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/data/minhash.hpp"
#include "src/data/shingles.hpp"
#include "src/data/tokenizer.hpp"

namespace trireme::io {

struct CorpusCleanOptions {
  std::vector<std::string> inputs;
  std::string output;  ///< JSON lines
  std::string report;  ///< JSON lines; empty: none
  TextReaderOptions reader;
  bool text_lines = false;  ///< each line of a text file is a document
  std::string id_key = "id";
  bool compose_unicode = false;     ///< texts are brought into the form NFC
  std::int64_t least_tokens = 128;  ///< shorter documents go; 0 keeps all and needs no tokenizer
  double jaccard = 0.7;             ///< 1: only documents of equal text are duplicates
  data::ShingleOptions shingles;
  data::MinHashOptions minhash;
  std::int64_t neighbours = 16;  ///< of a bucket, that a document is compared with
};

/// Of all ranks.
struct CorpusCleanReport {
  std::int64_t documents = 0;
  std::int64_t input_bytes = 0;  ///< of the documents with the JSON round them
  std::int64_t short_documents = 0;
  std::int64_t exact_duplicates = 0;
  std::int64_t near_duplicates = 0;
  std::int64_t kept_documents = 0;
  std::int64_t compared_pairs = 0;
  std::int64_t state_bytes = 0;  ///< in memory for each document until duplicates are found
  double read_s = 0;             ///< reading, counting tokens, MinHash; this and the others on the slowest rank
  double search_s = 0;
  double write_s = 0;
};

/// Copies documents of JSON lines or text to one file of JSON lines, in their order, without those of few tokens and
/// without those that repeat an earlier one (`data::find_duplicates`). A line of JSON stays byte for byte as it is
/// unless its text changes into NFC. The report has a line of JSON for each document that went: its number in the input
/// from 0, its id, the reason ("short", "exact duplicate", "near duplicate"), and for duplicates the document kept for
/// them and the similarity to that.
///
/// Collective; the result does not depend on ranks and threads. Each rank needs disk for its part of the text beside
/// the output. `progress` is called with the bytes read so far and those there are. On failure nothing stands under the
/// names of the output and the report that did not before. Throws DataError (input that cannot be read, nothing left),
/// ConfigError (an output that is an input), IoError.
CorpusCleanReport clean_corpus(const CorpusCleanOptions& options, const data::Tokenizer* tokenizer, Communicator& comm,
                               ThreadPool& pool, const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace trireme::io
