#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/data/dedup/minhash.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

/// Change made to the characters of a text.
enum class UnicodeForm {
  as_it_is,
  nfc,      ///< letters and marks joined if Unicode has a composed character
  repaired  ///< `data::repaired`
};

struct CorpusCleanOptions {
  std::vector<std::string> inputs;
  std::string output;  ///< JSON lines, compressed if it ends in .gz or .zst
  std::string report;  ///< likewise; empty: none
  TextReaderOptions reader;
  std::string id_key = "id";
  UnicodeForm unicode = UnicodeForm::as_it_is;
  std::vector<std::string>
      languages;  ///< codes (`data::LanguageDetector`); documents in others are removed; none: all are kept
  double min_language_fraction = 0.5;  ///< fraction of a document that is in these languages
  bool skip_bad_lines = false;         ///< skip bad lines of JSON; otherwise the first one is an error
  std::int64_t max_bad_lines = 1000;
  std::int64_t min_tokens = 128;  ///< shorter documents are removed; 0 keeps all and needs no tokenizer
  double jaccard = 0.7;           ///< 1: only documents of equal text are duplicates
  data::ShingleOptions shingles;
  data::MinHashOptions minhash;
  std::int64_t neighbours = 16;  ///< documents of a bucket to compare a document with
};

/// Totals over all ranks.
struct CorpusCleanReport {
  std::int64_t documents = 0;
  std::int64_t input_bytes = 0;                   ///< bytes of the documents including their JSON
  std::int64_t changed_documents = 0;             ///< documents with changed characters
  std::int64_t bad_lines = 0;                     ///< no documents
  std::vector<std::string> first_bad_lines = {};  ///< faults of the first few
  std::int64_t short_documents = 0;
  std::int64_t foreign_documents = 0;  ///< in other languages than those wanted
  std::int64_t exact_duplicates = 0;
  std::int64_t near_duplicates = 0;
  std::int64_t kept_documents = 0;
  std::int64_t compared_pairs = 0;
  std::int64_t state_bytes = 0;  ///< memory per document until duplicates are found
  double read_s = 0;             ///< reading, counting tokens, MinHash; this and the others on the slowest rank
  double search_s = 0;
  double write_s = 0;
};

/// Copies documents of JSON lines or text to one file of JSON lines, in their order. Removes short documents, those in
/// other languages, and those that repeat an earlier one (`data::find_duplicates`). Character changes come first; an
/// unchanged JSON line is copied byte for byte. The report has a line of JSON for each removed document: its number in
/// the input from 0, its id and the reason ("short", "language", "exact duplicate", "near duplicate"). The line also
/// has its tokens, or its language and the fraction of those wanted, or the document kept instead and the similarity to
/// it.
///
/// Collective; the result does not depend on ranks and threads (for a compressed file: its unpacked content). Meanwhile
/// a copy of the documents is kept on disk, in the folder OUTPUT.partial. `progress` is called with the bytes read so
/// far and in total. On failure or kill, no new output or report exists. DataError: the input cannot be read, has too
/// many bad lines, or nothing is left. ConfigError: an output is an input. EnvironmentError: another job is making the
/// same output. Also IoError.
CorpusCleanReport clean_corpus(const Files& files, const CorpusCleanOptions& options, const data::Tokenizer* tokenizer,
                               Communicator& comm, ThreadPool& pool, const ByteProgress& progress);

}  // namespace trireme::prepare
