#include "io/corpus_cleaner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "io/document_reader.hpp"
#include "io/document_spool.hpp"
#include "io/json_text.hpp"
#include "io/ordered_output.hpp"
#include "src/base/check.hpp"
#include "src/base/timer.hpp"
#include "src/comm/all_to_all.hpp"
#include "src/data/duplicate_search.hpp"
#include "src/data/unicode.hpp"

namespace trireme::io {
namespace {

/// A document and what a thread found out about it.
struct Work {
  TextPiece piece;
  std::string record;  // the line of the output, with its end
  std::int64_t tokens = 0;
  Hash128 digest;
  std::vector<std::uint64_t> band_keys;
  std::optional<DataError> error;
};

struct ShortDocument {
  std::int64_t document;  // of this rank
  std::int64_t tokens;
};

/// The number of tokens where it is below `enough`; otherwise some number that is not. Long texts are not read whole.
std::int64_t count_tokens(std::string_view text, const data::Tokenizer& tokenizer, std::int64_t enough) {
  constexpr std::size_t step = 1024;
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin < text.size() && static_cast<std::int64_t>(ids.size()) < enough;) {
    std::size_t end = std::min(begin + step, text.size());
    while (end < text.size() && !tokenizer.can_cut(text, end)) ++end;
    tokenizer.encode(text.substr(begin, end - begin), ids);
    begin = end;
  }
  return static_cast<std::int64_t>(ids.size());
}

class Cleaner {
 public:
  Cleaner(const CorpusCleanOptions& options, const data::Tokenizer* tokenizer, Communicator& comm, ThreadPool& pool)
      : options_(options), tokenizer_(tokenizer), comm_(comm), pool_(pool), minhash_(options.minhash) {
    fingerprints_.bands = options.jaccard < 1 ? minhash_.bands() : 0;
    collectively(comm_, [&] { check_names(); });
    output_.emplace(comm_, options_.output);
    if (!options_.report.empty()) report_file_.emplace(comm_, options_.report);
    spool_.emplace(comm_, options_.output);
  }

  CorpusCleanReport run(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const Timer reading;
    collectively(comm_, [&] { read(progress); });
    spool_->finish();
    for (std::int64_t& document : fingerprints_.documents) document += spool_->begin();
    report_.read_s = reading.elapsed_s();

    const Timer searching;
    data::DuplicateSearchOptions search;
    search.jaccard = options_.jaccard;
    search.neighbours = options_.neighbours;
    search.shingle_set = [&](std::int64_t document) { return shingle_set(document); };
    report_.state_bytes =
        static_cast<std::int64_t>(sizeof(std::int64_t) + sizeof(Hash128) +
                                  sizeof(std::uint64_t) * (1 + static_cast<unsigned>(fingerprints_.bands)));
    const auto found = data::find_duplicates(comm_, pool_, fingerprints_, search);
    fingerprints_ = {};
    report_.compared_pairs = found.compared_pairs;
    report_.search_s = searching.elapsed_s();

    const Timer writing;
    collectively(comm_, [&] { write(found.duplicates); });
    sum_over_ranks();
    TRIREME_CHECK(report_.kept_documents > 0, DataError,
                  "nothing is left of {} documents: {} have fewer than {} tokens; is --json-key the right one?",
                  report_.documents, report_.short_documents, options_.least_tokens);
    if (report_file_) report_file_->commit();
    output_->commit();
    report_.write_s = greatest(writing.elapsed_s());
    return report_;
  }

 private:
  void check_names() const {
    const auto same = [](const std::string& a, const std::string& b) {
      std::error_code ignored;
      return a == b || std::filesystem::equivalent(a, b, ignored);
    };
    for (const std::string& input : options_.inputs) {
      TRIREME_CHECK(!same(input, options_.output), ConfigError, "{} is both input and output", options_.output);
      TRIREME_CHECK(!same(input, options_.report), ConfigError, "{} is both input and report", options_.report);
    }
    TRIREME_CHECK(!same(options_.output, options_.report), ConfigError, "{} is both output and report",
                  options_.output);
  }

  void read(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    DocumentReader reader(options_.inputs, options_.reader, options_.text_lines, comm_.rank(), comm_.size());
    read_in_batches<Work>(
        reader, pool_, progress, [&](Work& work) { examine(work); }, [&](const Work& work) { add(work); });
  }

  void examine(Work& work) const {
    try {
      const bool is_json = work.piece.is_json;
      if (is_json) work.record = work.piece.bytes;
      std::string text = text_of(std::move(work.piece), options_.reader);
      if (options_.compose_unicode && !data::is_surely_composed(text)) {
        const std::string before = std::exchange(text, data::composed(text));
        if (is_json && text != before) work.record = with_json_text(work.record, options_.reader.json_key, text);
      }
      if (!is_json) work.record = json_line(options_.reader.json_key, text);
      if (work.record.ends_with('\r')) work.record.pop_back();
      work.record += '\n';
      if (options_.least_tokens > 0) work.tokens = count_tokens(text, *tokenizer_, options_.least_tokens);
      if (work.tokens < options_.least_tokens) return;
      work.digest = hash128(text.data(), text.size());
      work.band_keys.resize(static_cast<std::size_t>(fingerprints_.bands));
      if (fingerprints_.bands == 0) return;
      std::vector<std::uint64_t> shingles;
      data::shingle_hashes(text, options_.shingles, shingles);
      minhash_.band_keys(shingles, work.band_keys);
    } catch (const DataError& error) {
      work.error = error;
    }
  }

  void add(const Work& work) {
    if (work.error) throw *work.error;
    const std::int64_t document = report_.documents++;
    report_.input_bytes += static_cast<std::int64_t>(work.record.size());
    spool_->append(work.record);
    if (work.tokens < options_.least_tokens) {
      short_documents_.push_back({document, work.tokens});
      return;
    }
    fingerprints_.documents.push_back(document);
    fingerprints_.digests.push_back(work.digest);
    fingerprints_.band_keys.insert(fingerprints_.band_keys.end(), work.band_keys.begin(), work.band_keys.end());
  }

  std::vector<std::uint64_t> shingle_set(std::int64_t document) const {
    const std::string line = spool_->read(document);
    std::vector<std::uint64_t> shingles;
    data::shingle_hashes(json_text(line, options_.reader.json_key, options_.output, document), options_.shingles,
                         shingles);
    data::make_set(shingles);
    return shingles;
  }

  void write(const std::vector<data::Duplicate>& duplicates) {
    auto next_short = short_documents_.begin();
    auto next_duplicate = duplicates.begin();
    for (std::int64_t document = spool_->begin(); document < spool_->end(); ++document) {
      const std::string line = spool_->read(document);
      if (next_short != short_documents_.end() && next_short->document + spool_->begin() == document) {
        ++report_.short_documents;
        report_line(R"({{"document":{},"id":{},"reason":"short","tokens":{}}})", document,
                    json_value(line, options_.id_key), next_short++->tokens);
      } else if (next_duplicate != duplicates.end() && next_duplicate->document == document) {
        const data::Duplicate& duplicate = *next_duplicate++;
        ++(duplicate.is_exact != 0 ? report_.exact_duplicates : report_.near_duplicates);
        if (!report_file_) continue;
        report_line(R"({{"document":{},"id":{},"reason":"{} duplicate","kept":{},"kept_id":{},"similarity":{:.6f}}})",
                    document, json_value(line, options_.id_key), duplicate.is_exact != 0 ? "exact" : "near",
                    duplicate.kept, json_value(spool_->read(duplicate.kept), options_.id_key),
                    data::jaccard(shingle_set(duplicate.kept), shingle_set(document)));
      } else {
        ++report_.kept_documents;
        output_->append(line);
      }
    }
  }

  template <class... Arguments>
  void report_line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (report_file_) report_file_->append(fmt::format(format, std::forward<Arguments>(arguments)...) + "\n");
  }

  double greatest(double number) {
    ImmediateStream host;
    comm_.all_reduce(host, TensorView(&number, {1}), ReduceOp::max).wait(host);
    return number;
  }

  void sum_over_ranks() {
    ImmediateStream host;
    std::array<std::int64_t, 7> sums = {report_.documents,        report_.input_bytes,     report_.short_documents,
                                        report_.exact_duplicates, report_.near_duplicates, report_.kept_documents,
                                        report_.compared_pairs};
    comm_.all_reduce(host, TensorView(sums.data(), {std::ssize(sums)}), ReduceOp::sum).wait(host);
    std::tie(report_.documents, report_.input_bytes, report_.short_documents, report_.exact_duplicates,
             report_.near_duplicates, report_.kept_documents, report_.compared_pairs) = std::tuple_cat(sums);
    report_.read_s = greatest(report_.read_s);
    report_.search_s = greatest(report_.search_s);
  }

  const CorpusCleanOptions& options_;
  const data::Tokenizer* tokenizer_;
  Communicator& comm_;
  ThreadPool& pool_;
  data::MinHash minhash_;
  std::optional<OrderedOutput> output_;
  std::optional<OrderedOutput> report_file_;
  std::optional<DocumentSpool> spool_;
  data::Fingerprints fingerprints_;  // documents' numbers are this rank's until all are read
  std::vector<ShortDocument> short_documents_;
  CorpusCleanReport report_;
};

}  // namespace

CorpusCleanReport clean_corpus(const CorpusCleanOptions& options, const data::Tokenizer* tokenizer, Communicator& comm,
                               ThreadPool& pool, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  return Cleaner(options, tokenizer, comm, pool).run(progress);
}

}  // namespace trireme::io
