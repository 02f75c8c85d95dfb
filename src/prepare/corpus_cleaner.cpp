#include "src/prepare/corpus_cleaner.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/data/dedup/duplicate_search.hpp"
#include "src/data/dedup/recent_sets.hpp"
#include "src/data/quality/separated_words.hpp"
#include "src/data/text/joined_lines.hpp"
#include "src/data/text/sentence_splitter.hpp"
#include "src/data/text/unicode.hpp"
#include "src/prepare/document_reader.hpp"
#include "src/prepare/repeated_text.hpp"
#include "src/prepare/shared_files.hpp"

namespace trireme::prepare {
namespace {

/// A document, and the results of its examination by a thread.
struct Work {
  TextPiece piece;
  std::string record;  // the output line, with newline
  bool is_changed = false;
  bool has_url = false, has_title = false;
  std::string reason_to_go;  // for the report; empty if none
  Hash128 digest;
  std::vector<std::uint64_t> band_keys;
  std::string sketch;
  std::vector<Hash128> spans;
  std::optional<DataError> error;
};

/// A document that is removed regardless of duplicates.
struct Unwanted {
  std::int64_t document;  // number on this rank
  std::string reason;
};

constexpr std::size_t max_first_bad_lines = 5;
constexpr std::size_t max_kept_ids = 1 << 12;  // in memory, of documents that others repeat

class Cleaner {
 public:
  Cleaner(const Files& files, const CorpusCleanOptions& options, Communicator& comm, ThreadPool& pool)
      : files_(files), options_(options), comm_(comm), pool_(pool), minhash_(options.minhash) {
    fingerprints_.bands = options.jaccard < 1 ? minhash_.bands() : 0;
    collectively(comm_, [&] { check_names(); });
    output_.emplace(files_, comm_, pool_, options_.output);
    if (!options_.report.empty()) report_file_.emplace(files_, comm_, pool_, options_.report);
    spool_.emplace(files_, comm_, output_->folder(), "documents");
    sketches_.emplace(files_, comm_, output_->folder(), "sketches");
    if (options_.repeated_text) repeated_.emplace(files_, comm_, output_->folder());
  }

  CorpusCleanReport run(const ByteProgress& progress) {
    const Timer reading;
    collectively(comm_, [&] { read(progress); });
    gather_bad_lines();
    check_bad_lines(all_reduce_number(comm_, report_.bad_lines, ReduceOp::sum));
    spool_->finish();
    sketches_->finish();
    for (std::int64_t& document : fingerprints_.documents) document += spool_->begin();
    report_.read_s = reading.elapsed_s();

    const Timer searching;
    data::DuplicateSearchOptions search;
    search.jaccard = options_.jaccard;
    search.neighbours = options_.neighbours;
    search.sketch = [&](std::int64_t document) { return sketches_->read(document); };
    search.shingle_set = [&](std::int64_t document) { return shingle_set(spool_->read(document), document); };
    report_.state_bytes =
        static_cast<std::int64_t>(sizeof(std::int64_t) + sizeof(Hash128) +
                                  sizeof(std::uint64_t) * (2 + static_cast<unsigned>(fingerprints_.bands)));
    const auto found = data::find_duplicates(comm_, pool_, fingerprints_, search);
    fingerprints_ = {};
    if (repeated_) find_repeated_text(found.duplicates);
    report_.compared_pairs = found.compared_pairs;
    report_.search_s = searching.elapsed_s();

    const Timer writing;
    if (!output_->is_compressed() && !repeated_) output_->expect(kept_bytes(found.duplicates));
    collectively(comm_, [&] { write(found.duplicates); });
    sum_over_ranks();
    const bool is_empty = report_.documents == 0;
    TRIREME_CHECK(!options_.filters.blocked_urls || is_empty || report_.documents_with_url > 0, DataError,
                  "none of {} documents has an address under the key '{}': give the right one by <url_key>",
                  report_.documents, options_.url_key);
    TRIREME_CHECK(!options_.filters.blocked_titles || is_empty || report_.documents_with_title > 0, DataError,
                  "none of {} documents has a title under the key '{}': give the right one by <title_key>",
                  report_.documents, options_.title_key);
    TRIREME_CHECK(report_.kept_documents > 0, DataError,
                  "nothing is left of {} documents, of which filters removed {}; is <json_key> the right one?",
                  report_.documents, fmt::join(counts_by_reason(), ", "));
    if (report_file_) report_file_->commit();
    output_->commit();
    report_.write_s = all_reduce_number(comm_, writing.elapsed_s(), ReduceOp::max);
    return report_;
  }

 private:
  void check_names() const {
    for (const std::string& input : options_.inputs) {
      files_.inputs->check_different(input, options_.output);
      files_.inputs->check_different(input, options_.report, "input and report");
    }
    files_.inputs->check_different(options_.report, options_.output, "output and report");
  }

  void read(const ByteProgress& progress) {
    TextReaderOptions whole = options_.reader;
    whole.whole_rows = true;
    DocumentReader reader(files_, options_.inputs, whole, comm_.rank(), comm_.size());
    read_in_batches<Work>(
        reader, pool_, progress, [&](Work& work) { examine(work); }, [&](const Work& work) { add(work); });
  }

  void examine(Work& work) const {
    try {
      std::string text = text_of(files_, work.piece, options_.reader);
      if (work.piece.is_json) work.record = std::move(work.piece.bytes);
      const bool may_change =
          options_.unicode != UnicodeForm::as_it_is || options_.joins_lines || options_.filters.quality;
      const std::string original = may_change ? text : std::string();
      if (options_.unicode == UnicodeForm::repaired) {
        text = data::repaired(text);
      } else if (options_.unicode == UnicodeForm::nfc && !data::is_surely_composed(text)) {
        text = data::composed(text);
      }
      if (options_.joins_lines) text = data::joined_lines(text);
      const DocumentNames names{
          .url = member(work, options_.filters.blocked_urls != nullptr, options_.url_key, "<blocked_urls>"),
          .title = member(work, options_.filters.blocked_titles != nullptr, options_.title_key, "<blocked_titles>")};
      work.has_url = names.url.has_value();
      work.has_title = names.title.has_value();
      work.reason_to_go = options_.filters.reason_to_go(text, names);
      work.is_changed = may_change && text != original;
      if (!work.piece.is_json) {
        work.record = files_.json->line(options_.reader.json_key, text);
      } else if (work.is_changed) {
        work.record = files_.json->with_text(work.record, options_.reader.json_key, text);
      }
      if (work.record.ends_with('\r')) work.record.pop_back();
      work.record += '\n';
      if (!work.reason_to_go.empty()) return;
      work.digest = hash128(text.data(), text.size());
      if (options_.repeated_text) work.spans = data::span_hashes(text, options_.repeated_text->spans);
      work.band_keys.resize(static_cast<std::size_t>(fingerprints_.bands));
      if (fingerprints_.bands == 0) return;
      std::vector<std::uint64_t> shingles;
      data::shingle_hashes(text, options_.shingles, shingles);
      work.sketch.resize(static_cast<std::size_t>(minhash_.sketch_bytes()));
      minhash_.band_keys(shingles, work.band_keys, work.sketch);
    } catch (const DataError& error) {
      work.error = error;
    }
  }

  std::optional<std::string> member(const Work& work, bool is_used, const std::string& key, const char* option) const {
    if (!is_used) return {};
    TRIREME_CHECK(work.piece.is_json, DataError, "{} is text, without a '{}': {} needs JSON lines", work.piece.path,
                  key, option);
    return files_.json->optional_text(work.record, key, work.piece.path, work.piece.position);
  }

  void add(const Work& work) {
    if (work.error) {
      if (!options_.skip_bad_lines || !work.piece.is_json) throw *work.error;
      if (report_.first_bad_lines.size() < max_first_bad_lines) {
        report_.first_bad_lines.emplace_back(work.error->what());
      }
      check_bad_lines(++report_.bad_lines);
      return;
    }
    const std::int64_t document = report_.documents++;
    report_.input_bytes += static_cast<std::int64_t>(work.record.size());
    report_.changed_documents += work.is_changed ? 1 : 0;
    report_.documents_with_url += work.has_url ? 1 : 0;
    report_.documents_with_title += work.has_title ? 1 : 0;
    spool_->append(work.record);
    sketches_->append(work.sketch);
    if (repeated_) repeated_->append(work.spans);
    if (!work.reason_to_go.empty()) {
      // The reason is the first string of JSON.
      ++report_.filtered[work.reason_to_go.substr(1, work.reason_to_go.find('"', 1) - 1)];
      unwanted_.push_back({document, work.reason_to_go});
      return;
    }
    fingerprints_.documents.push_back(document);
    fingerprints_.digests.push_back(work.digest);
    fingerprints_.band_keys.insert(fingerprints_.band_keys.end(), work.band_keys.begin(), work.band_keys.end());
  }

  void check_bad_lines(std::int64_t bad_lines) const {
    TRIREME_CHECK(bad_lines <= options_.max_bad_lines, DataError,
                  "more than the {} bad lines that <max_bad_lines> allows, among them: {}", options_.max_bad_lines,
                  report_.first_bad_lines.front());
  }

  /// Gathers the first bad lines of all ranks.
  void gather_bad_lines() {
    const std::vector<std::string> texts =
        all_gather_text(comm_, fmt::format("{}", fmt::join(report_.first_bad_lines, "\n")));
    report_.first_bad_lines.clear();
    for (const std::string& text : texts) {
      for (const std::string_view line : split(text, '\n')) report_.first_bad_lines.emplace_back(line);
    }
    report_.first_bad_lines.resize(std::min(report_.first_bad_lines.size(), max_first_bad_lines));
  }

  std::string text_of_document(const std::string& line, std::int64_t document) const {
    return text_in(line, files_, options_.reader, options_.output, document);
  }

  std::vector<std::uint64_t> shingle_set(const std::string& line, std::int64_t document) const {
    std::vector<std::uint64_t> shingles;
    data::shingle_hashes(text_of_document(line, document), options_.shingles, shingles);
    data::make_set(shingles);
    return shingles;
  }

  void find_repeated_text(const std::vector<data::Duplicate>& duplicates) {
    std::vector<bool> is_kept(static_cast<std::size_t>(spool_->end() - spool_->begin()), true);
    for (const Unwanted& unwanted : unwanted_) is_kept[static_cast<std::size_t>(unwanted.document)] = false;
    for (const data::Duplicate& duplicate : duplicates) {
      is_kept[static_cast<std::size_t>(duplicate.document - spool_->begin())] = false;
    }
    repeated_->find(
        [&](std::int64_t document) { return is_kept[static_cast<std::size_t>(document - spool_->begin())]; });
  }

  /// Returns the bytes of this rank's kept documents.
  std::int64_t kept_bytes(const std::vector<data::Duplicate>& duplicates) const {
    std::int64_t bytes = spool_->size_bytes();
    for (const Unwanted& unwanted : unwanted_) bytes -= spool_->size_bytes(spool_->begin() + unwanted.document);
    for (const data::Duplicate& duplicate : duplicates) bytes -= spool_->size_bytes(duplicate.document);
    return bytes;
  }

  void write(const std::vector<data::Duplicate>& duplicates) {
    data::RecentSets sets([&](std::int64_t document) { return shingle_set(spool_->read(document), document); });
    std::unordered_map<std::int64_t, std::string> kept_ids;
    auto next_unwanted = unwanted_.begin();
    auto next_duplicate = duplicates.begin();
    for (std::int64_t document = spool_->begin(); document < spool_->end(); ++document) {
      const std::string line = spool_->read(document);
      if (next_unwanted != unwanted_.end() && next_unwanted->document + spool_->begin() == document) {
        report_line(R"({{"document":{},"id":{},"reason":{}}})", document, files_.json->value(line, options_.id_key),
                    next_unwanted++->reason);
      } else if (next_duplicate != duplicates.end() && next_duplicate->document == document) {
        const data::Duplicate& duplicate = *next_duplicate++;
        ++(duplicate.is_exact != 0 ? report_.exact_duplicates : report_.near_duplicates);
        if (!report_file_) continue;
        if (kept_ids.size() > max_kept_ids) kept_ids.clear();
        std::string& kept_id = kept_ids[duplicate.kept];
        if (kept_id.empty()) kept_id = files_.json->value(spool_->read(duplicate.kept), options_.id_key);
        report_line(R"({{"document":{},"id":{},"reason":"{} duplicate","kept":{},"kept_id":{},"similarity":{:.6f}}})",
                    document, files_.json->value(line, options_.id_key), duplicate.is_exact != 0 ? "exact" : "near",
                    duplicate.kept, kept_id,
                    data::jaccard(sets.of(duplicate.kept)->shingles, shingle_set(line, document)));
      } else if (auto rest = repeated_ ? without_repeated_text(line, document) : line) {
        ++report_.kept_documents;
        output_->append(*rest);
      }
    }
  }

  /// Returns the line of a document without its repeated text; nothing if too little is left.
  std::optional<std::string> without_repeated_text(const std::string& line, std::int64_t document) {
    const RepeatedTextOptions& repeated = *options_.repeated_text;
    std::vector<std::size_t> first_parts;
    std::string id;
    for (const RepeatedSpan& span : repeated_->of(document)) {
      if (first_parts.empty()) id = files_.json->value(line, options_.id_key);
      first_parts.push_back(static_cast<std::size_t>(span.first_part));
      report_line(R"({{"document":{},"id":{},"reason":"repeated text","part":{},"kept":{}}})", document, id,
                  span.first_part, span.kept);
    }
    if (first_parts.empty()) return line;
    report_.repeated_spans += std::ssize(first_parts);
    const std::string rest = data::without_spans(text_of_document(line, document), repeated.spans, first_parts);
    std::vector<std::string_view> words;
    data::separated_words(rest, words);
    const std::int64_t sentences = std::ssize(data::sentence_ends(rest));
    if (std::ssize(words) < repeated.min_rest_words || sentences < repeated.min_rest_sentences || words.empty()) {
      ++report_.filtered["short rest"];
      report_line(R"({{"document":{},"id":{},"reason":"short rest","words":{},"sentences":{}}})", document, id,
                  words.size(), sentences);
      return std::nullopt;
    }
    ++report_.shortened_documents;
    return files_.json->with_text(line, options_.reader.json_key, rest) + '\n';
  }

  template <class... Arguments>
  void report_line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (report_file_) report_file_->append(fmt::format(format, std::forward<Arguments>(arguments)...) + "\n");
  }

  std::vector<std::string> counts_by_reason() const {
    std::vector<std::string> counts;
    for (const auto& [reason, count] : report_.filtered) counts.push_back(fmt::format("{} as {}", count, reason));
    return counts.empty() ? std::vector<std::string>{"none"} : counts;
  }

  void sum_over_ranks() {
    std::string mine;
    for (const auto& [reason, count] : report_.filtered) mine += fmt::format("{}\t{}\n", reason, count);
    report_.filtered.clear();
    for (const std::string& text : all_gather_text(comm_, mine)) {
      for (const std::string_view line : split(text, '\n')) {
        const std::size_t tab = line.find('\t');
        report_.filtered[std::string(line.substr(0, tab))] += std::stoll(std::string(line.substr(tab + 1)));
      }
    }
    for (std::int64_t* number :
         {&report_.documents, &report_.input_bytes, &report_.changed_documents, &report_.documents_with_url,
          &report_.documents_with_title, &report_.bad_lines, &report_.exact_duplicates, &report_.near_duplicates,
          &report_.repeated_spans, &report_.shortened_documents, &report_.kept_documents, &report_.compared_pairs}) {
      *number = all_reduce_number(comm_, *number, ReduceOp::sum);
    }
    for (double* time_s : {&report_.read_s, &report_.search_s}) {
      *time_s = all_reduce_number(comm_, *time_s, ReduceOp::max);
    }
  }

  const Files& files_;
  const CorpusCleanOptions& options_;
  Communicator& comm_;
  ThreadPool& pool_;
  data::MinHash minhash_;
  std::optional<OrderedOutput> output_;
  std::optional<OrderedOutput> report_file_;
  std::optional<DocumentSpool> spool_;     // spool of the records
  std::optional<DocumentSpool> sketches_;  // sketches of the compared documents; others are empty
  std::optional<RepeatedText> repeated_;   // with `repeated_text` alone
  data::Fingerprints fingerprints_;        // documents' numbers are this rank's until all are read
  std::vector<Unwanted> unwanted_;
  CorpusCleanReport report_;
};

}  // namespace

CorpusCleanReport clean_corpus(const Files& files, const CorpusCleanOptions& options, Communicator& comm,
                               ThreadPool& pool, const ByteProgress& progress) {
  return Cleaner(files, options, comm, pool).run(progress);
}

}  // namespace trireme::prepare
