#include "src/prepare/corpus_overlap.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <tuple>

#include "src/base/check.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/prepare/document_reader.hpp"
#include "src/prepare/shared_files.hpp"

namespace trireme::prepare {
namespace {

/// A document of the corpus, and the results of its examination by a thread.
struct Work {
  TextPiece piece;
  std::int64_t text_bytes = 0;
  bool overlaps = false;
  std::string records;  // lines of the output
  std::int64_t written_documents = 0;
  std::optional<DataError> error;
};

class Overlap {
 public:
  Overlap(const Files& files, const CorpusOverlapOptions& options, Communicator& comm, ThreadPool& pool)
      : files_(files), options_(options), comm_(comm), pool_(pool) {}

  CorpusOverlapReport run(const ByteProgress& progress) {
    collectively(comm_, [&] {
      check_names();
      for (const std::string& test : options_.tests) read_test(test);
    });
    marks_.resize(static_cast<std::size_t>(ngrams_.slots()));
    if (!options_.output.empty()) output_.emplace(files_, comm_, pool_, options_.output);
    collectively(comm_, [&] { read_corpus(progress); });
    sum_over_ranks();
    for (std::size_t t = 0; t < tests_.size(); ++t) {
      for (const std::uint64_t hash : tests_[t]) {
        report_.tests[t].overlapping += marks_[static_cast<std::size_t>(ngrams_.find(hash))];
      }
    }
    if (output_) {
      TRIREME_CHECK(report_.written_documents > 0, DataError, "nothing is left of {} documents, {} of which overlap",
                    report_.documents, report_.affected_documents);
      output_->commit();
    }
    return report_;
  }

 private:
  void check_names() const {
    for (const auto* names : {&options_.inputs, &options_.tests}) {
      for (const std::string& name : *names) files_.inputs->check_different(name, options_.output);
    }
  }

  void read_test(const std::string& path) {
    DocumentReader reader(files_, {path}, options_.test_reader, 0, 1);
    TestOverlap& overlap = report_.tests.emplace_back();
    std::vector<std::uint64_t>& hashes = tests_.emplace_back();
    for (TextPiece piece; reader.next(piece); ++overlap.documents) {
      const std::string text = text_of(files_, piece, options_.test_reader);
      for (data::NgramReader ngrams(text, options_.n); ngrams.next();) hashes.push_back(ngrams.hash());
    }
    std::ranges::sort(hashes);
    hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
    for (const std::uint64_t hash : hashes) ngrams_.insert(hash);
    overlap.ngrams = std::ssize(hashes);
    TRIREME_CHECK(overlap.ngrams > 0, DataError, "none of the {} documents of {} has {} words", overlap.documents, path,
                  options_.n);
  }

  void read_corpus(const ByteProgress& progress) {
    TextReaderOptions whole = options_.reader;
    whole.whole_rows = output_.has_value();
    DocumentReader reader(files_, options_.inputs, whole, comm_.rank(), comm_.size());
    read_in_batches<Work>(
        reader, pool_, progress, [&](Work& work) { examine(work); }, [&](const Work& work) { add(work); });
  }

  void examine(Work& work) {
    try {
      const bool is_json = work.piece.is_json;
      std::string line = is_json && output_ ? work.piece.bytes : "";
      const std::string text = text_of(files_, work.piece, options_.reader);
      work.text_bytes = std::ssize(text);
      std::vector<data::TextRange> passages;
      for (data::NgramReader ngrams(text, options_.n); ngrams.next();) {
        const std::int64_t slot = ngrams_.find(ngrams.hash());
        if (slot < 0) continue;
        std::atomic_ref(marks_[static_cast<std::size_t>(slot)]).store(1, std::memory_order_relaxed);
        passages.push_back({ngrams.begin(), ngrams.end()});
      }
      work.overlaps = !passages.empty();
      if (output_) make_records(work, std::move(line), text, passages);
    } catch (const DataError& error) {
      work.error = error;
    }
  }

  void make_records(Work& work, std::string line, const std::string& text,
                    const std::vector<data::TextRange>& passages) const {
    const std::string& key = options_.reader.json_key;
    const bool is_json = !line.empty();
    if (!work.overlaps) {
      if (line.ends_with('\r')) line.pop_back();
      work.records = (is_json ? line : files_.json->line(key, text)) + '\n';
      work.written_documents = 1;
      return;
    }
    for (const data::TextRange& piece : data::pieces_without(text, passages, options_.removal)) {
      const std::string rest = text.substr(piece.begin, piece.end - piece.begin);
      work.records += (is_json ? files_.json->with_text(line, key, rest) : files_.json->line(key, rest)) + '\n';
      ++work.written_documents;
    }
  }

  void add(const Work& work) {
    if (work.error) throw *work.error;
    ++report_.documents;
    report_.input_bytes += work.text_bytes;
    report_.affected_documents += work.overlaps ? 1 : 0;
    if (!output_) return;
    output_->append(work.records);
    report_.written_documents += work.written_documents;
    report_.removed_documents += work.written_documents == 0 ? 1 : 0;
  }

  void sum_over_ranks() {
    all_reduce_numbers(comm_, marks_, ReduceOp::max);
    std::array<std::int64_t, 5> sums = {report_.documents, report_.input_bytes, report_.affected_documents,
                                        report_.removed_documents, report_.written_documents};
    all_reduce_numbers(comm_, sums, ReduceOp::sum);
    std::tie(report_.documents, report_.input_bytes, report_.affected_documents, report_.removed_documents,
             report_.written_documents) = std::tuple_cat(sums);
  }

  const Files& files_;
  const CorpusOverlapOptions& options_;
  Communicator& comm_;
  ThreadPool& pool_;
  std::vector<std::vector<std::uint64_t>> tests_;  // the distinct n-grams of each
  data::HashSet ngrams_;                           // n-grams of all tests
  std::vector<std::int32_t> marks_;                // 1 for those found in the corpus, by their slots in `ngrams_`
  std::optional<OrderedOutput> output_;
  CorpusOverlapReport report_;
};

}  // namespace

CorpusOverlapReport corpus_overlap(const Files& files, const CorpusOverlapOptions& options, Communicator& comm,
                                   ThreadPool& pool, const ByteProgress& progress) {
  return Overlap(files, options, comm, pool).run(progress);
}

}  // namespace trireme::prepare
