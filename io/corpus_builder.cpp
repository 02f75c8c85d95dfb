#include "io/corpus_builder.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

#include "io/corpus_writer.hpp"
#include "src/base/check.hpp"
#include "src/data/sentence_splitter.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t greatest_first_bad_lines = 5;

/// A piece and what a thread made of it.
struct Work {
  TextPiece piece;
  bool is_json = false;
  bool ends_document = false;
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> sentence_ends;  // among the ids
  std::int64_t text_bytes = 0;
  std::int64_t cut_runs = 0;
  std::optional<DataError> error;
};

// As much as keeps all threads busy for a while: pieces of text are a MiB, lines of JSON may be short.
std::vector<Work> read_batch(TextReader& reader, std::int64_t batch_bytes) {
  std::vector<Work> batch;
  Work work;
  for (std::int64_t bytes = 0; bytes < batch_bytes && reader.next(work.piece);) {
    bytes += static_cast<std::int64_t>(work.piece.bytes.size());
    work.is_json = work.piece.is_json;
    work.ends_document = work.piece.ends_document;
    batch.push_back(std::move(work));
    work = {};
  }
  return batch;
}

void encode_sentences(std::string_view text, const data::Tokenizer& tokenizer, Work& work) {
  std::vector<std::size_t> ends;
  data::SentenceSplitter::split(text, ends);
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    tokenizer.encode(text.substr(begin, end - begin), work.ids);
    work.sentence_ends.push_back(work.ids.size());
    begin = end;
  }
}

void encode(Work& work, const CorpusBuildOptions& build, const data::Tokenizer& tokenizer) {
  const TextReaderOptions& options = build.reader;
  try {
    const std::string text = text_of(std::move(work.piece), options);
    work.text_bytes = static_cast<std::int64_t>(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const TextCut cut = cut_text(rest, options);
      work.cut_runs += cut.forced ? 1 : 0;
      if (build.split_sentences) {
        encode_sentences(rest.substr(0, cut.size_bytes), tokenizer, work);
      } else {
        tokenizer.encode(rest.substr(0, cut.size_bytes), work.ids);
      }
      rest.remove_prefix(cut.size_bytes);
    }
  } catch (const DataError& error) {
    work.error = error;
  }
}

}  // namespace

CorpusBuildReport build_corpus(const CorpusBuildOptions& options, const data::Tokenizer& tokenizer, ThreadPool& pool,
                               const std::function<void(std::int64_t, std::int64_t)>& progress) {
  for (const std::string& input : options.inputs) {
    std::error_code ignored;
    TRIREME_CHECK(!std::filesystem::equivalent(input, options.output, ignored), ConfigError,
                  "{} is both input and output", options.output);
  }
  TextReader reader(options.inputs, options.reader);
  CorpusWriter writer(options.output, tokenizer);
  CorpusBuildReport report;
  const std::int32_t end_of_document = tokenizer.end_of_document();
  const auto batch_bytes = options.reader.piece_bytes * 2 * pool.threads();

  for (;;) {
    std::vector<Work> batch = read_batch(reader, batch_bytes);
    if (batch.empty()) break;
    pool.parallel_for(static_cast<std::int64_t>(batch.size()),
                      [&](std::int64_t i) { encode(batch[static_cast<std::size_t>(i)], options, tokenizer); });
    for (Work& work : batch) {
      if (work.error) {
        if (!work.is_json || !options.skip_bad_lines) throw *work.error;
        ++report.bad_lines;
        if (report.first_bad_lines.size() < greatest_first_bad_lines) {
          report.first_bad_lines.emplace_back(work.error->what());
        }
        TRIREME_CHECK(report.bad_lines <= options.greatest_bad_lines, DataError,
                      "more than {} bad lines, the last: {}; --max-bad-lines allows more", options.greatest_bad_lines,
                      work.error->what());
        continue;
      }
      std::span<const std::int32_t> ids = work.ids;
      // The last sentence of a document takes the token that ends it.
      for (std::size_t i = 0, begin = 0; i < work.sentence_ends.size(); begin = work.sentence_ends[i++]) {
        writer.end_sentence();
        writer.append(ids.subspan(begin, work.sentence_ends[i] - begin));
      }
      if (!options.split_sentences) writer.append(ids);
      report.text_bytes += work.text_bytes;
      report.cut_runs += work.cut_runs;
      if (!work.ends_document) continue;
      if (writer.document_tokens() == 0) {
        ++report.empty_documents;
        continue;
      }
      if (options.append_end_of_document) writer.append({&end_of_document, 1});
      if (options.split_sentences) writer.end_sentence();
      writer.end_document();
    }
    progress(reader.bytes_read(), reader.total_bytes());
  }
  TRIREME_CHECK(writer.token_count() > 0, DataError,
                "the input of {} bytes holds no text: {} empty documents, {} bad lines", reader.total_bytes(),
                report.empty_documents, report.bad_lines);
  report.documents = writer.documents();
  report.tokens = writer.token_count();
  report.sentences = writer.sentences();
  report.cut_runs += reader.cut_runs();
  writer.finish();
  return report;
}

}  // namespace trireme::io
