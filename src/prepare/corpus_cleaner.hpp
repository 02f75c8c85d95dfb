#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/data/dedup/minhash.hpp"
#include "src/data/dedup/text_spans.hpp"
#include "src/prepare/document_filters.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

/// Change made to the characters of a text.
enum class UnicodeForm {
  as_it_is,
  nfc,      ///< letters and marks joined if Unicode has a composed character
  repaired  ///< `data::repaired`
};

/// Removal of text that occurs earlier: in another document that stays, or in the same one. The first occurrence stays.
/// The defaults are those of datatrove's sentence deduplication.
struct RepeatedTextOptions {
  data::SpanOptions spans;
  std::int64_t min_rest_words = 50;     ///< shortened documents of fewer (`data::separated_words`) are removed
  std::int64_t min_rest_sentences = 3;  ///< likewise
};

struct CorpusCleanOptions {
  std::vector<std::string> inputs;
  std::string output;  ///< JSON lines, compressed if it ends in .gz or .zst
  std::string report;  ///< likewise; empty: none
  TextReaderOptions reader;
  std::string id_key = "id";
  UnicodeForm unicode = UnicodeForm::as_it_is;
  DocumentFilters filters;
  bool joins_lines = false;         ///< `data::joined_lines`
  std::string url_key = "url";      ///< for `filters.blocked_urls`
  std::string title_key = "title";  ///< for `filters.blocked_titles`
  bool skip_bad_lines = false;      ///< skip bad lines of JSON; otherwise the first one is an error
  std::int64_t max_bad_lines = 1000;
  double jaccard = 0.7;  ///< 1: only documents of equal text are duplicates
  data::ShingleOptions shingles;
  data::MinHashOptions minhash;
  std::int64_t neighbours = 16;  ///< documents of a bucket to compare a document with
  std::optional<RepeatedTextOptions> repeated_text;
};

/// Totals over all ranks.
struct CorpusCleanReport {
  std::int64_t documents = 0;
  std::int64_t input_bytes = 0;                   ///< bytes of the documents including their JSON
  std::int64_t changed_documents = 0;             ///< documents with changed characters
  std::int64_t documents_with_url = 0;            ///< counted for `blocked_urls` alone
  std::int64_t documents_with_title = 0;          ///< counted for `blocked_titles` alone
  std::int64_t bad_lines = 0;                     ///< no documents
  std::vector<std::string> first_bad_lines = {};  ///< faults of the first few
  std::map<std::string, std::int64_t> filtered;   ///< documents that `DocumentFilters` removed, by reason
  std::int64_t exact_duplicates = 0;
  std::int64_t near_duplicates = 0;
  std::int64_t repeated_spans = 0;       ///< spans that occur earlier, with `repeated_text`
  std::int64_t shortened_documents = 0;  ///< kept documents without their repeated spans
  std::int64_t kept_documents = 0;
  std::int64_t compared_pairs = 0;
  std::int64_t state_bytes = 0;  ///< memory per document until duplicates are found
  double read_s = 0;             ///< reading, counting tokens, MinHash; this and the others on the slowest rank
  double search_s = 0;
  double write_s = 0;
};

/// Copies documents of JSON lines or text to one file of JSON lines, in their order. Removes those that the filters
/// find, and those that repeat an earlier one (`data::find_duplicates`). From the others it removes text that an
/// earlier one of them has (`RepeatedTextOptions`). Character changes come first; an unchanged JSON line is copied byte
/// for byte. The report has a line of JSON for each removed document: its number in the input from 0, its id and the
/// reason: that of the filter, "exact duplicate" or "near duplicate". The line also has the value that was judged, or
/// the document kept instead and the similarity to it. The report also has a line for each repeated span, with the
/// number of its first line or sentence and the document that keeps it.
///
/// Collective; the result does not depend on ranks and threads (for a compressed file: its unpacked content). Meanwhile
/// a copy of the documents is kept on disk, in the folder OUTPUT.partial. `progress` is called with the bytes read so
/// far and in total. On failure or kill, no new output or report exists. DataError: the input cannot be read, has too
/// many bad lines, or nothing is left. ConfigError: an output is an input. EnvironmentError: another job is making the
/// same output. Also IoError.
CorpusCleanReport clean_corpus(const Files& files, const CorpusCleanOptions& options, Communicator& comm,
                               ThreadPool& pool, const ByteProgress& progress);

}  // namespace trireme::prepare
