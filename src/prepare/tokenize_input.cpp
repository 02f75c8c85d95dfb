#include "src/prepare/tokenize_input.hpp"

#include <optional>

#include "src/base/check.hpp"
#include "src/data/text/sentence_splitter.hpp"

namespace trireme::prepare {
namespace {

constexpr std::size_t max_first_bad_lines = 5;

/// A piece of text and its tokens.
struct Work {
  TextPiece piece;
  bool is_json = false;
  bool ends_document = false;
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> sentence_ends;  // among the ids
  std::int64_t text_bytes = 0;
  std::int64_t forced_cuts = 0;
  data::SpellingCounts special_tokens;
  std::optional<DataError> error;
};

/// Returns enough pieces to keep all threads busy: pieces of text are a MiB, lines of JSON may be short.
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

void encode(const Files& files, Work& work, const CorpusTextOptions& text_options, const data::Tokenizer& tokenizer,
            const data::SpecialTokenFinder& special_tokens) {
  const TextReaderOptions& options = text_options.reader;
  try {
    const std::string text = text_of(files, std::move(work.piece), options);
    work.text_bytes = static_cast<std::int64_t>(text.size());
    special_tokens.count(text, work.special_tokens);
    for (std::string_view rest = text; !rest.empty();) {
      const CutPoint cut = first_cut(rest, options);
      work.forced_cuts += cut.forced ? 1 : 0;
      if (text_options.split_sentences) {
        encode_sentences(rest.substr(0, cut.position), tokenizer, work);
      } else {
        tokenizer.encode(rest.substr(0, cut.position), work.ids);
      }
      rest.remove_prefix(cut.position);
    }
  } catch (const DataError& error) {
    work.error = error;
  }
}

}  // namespace

CorpusTextCounts& CorpusTextCounts::operator+=(const CorpusTextCounts& other) {
  text_bytes += other.text_bytes;
  empty_documents += other.empty_documents;
  forced_cuts += other.forced_cuts;
  bad_lines += other.bad_lines;
  for (const std::string& line : other.first_bad_lines) {
    if (first_bad_lines.size() < max_first_bad_lines) first_bad_lines.push_back(line);
  }
  for (const auto& [spelling, count] : other.special_tokens) special_tokens[spelling] += count;
  return *this;
}

void tokenize_range(const Files& files, const InputRange& range, const CorpusTextOptions& options,
                    const data::Tokenizer& tokenizer, ThreadPool& pool, const std::string& path,
                    const std::function<void(std::int64_t)>& progress) {
  TextReader reader(files, range.files, options.reader);
  const auto writer = files.corpora->create_part(path, tokenizer.vocabulary_size(), range.begins_inside_document);
  CorpusTextCounts counts{.forced_cuts = range.forced_cuts};
  const std::int32_t end_of_document = tokenizer.end_of_document();
  const data::SpecialTokenFinder special_tokens(tokenizer);
  const auto batch_bytes = options.reader.piece_bytes * 2 * pool.threads();
  for (;;) {
    std::vector<Work> batch = read_batch(reader, batch_bytes);
    if (batch.empty()) break;
    pool.parallel_for(static_cast<std::int64_t>(batch.size()), [&](std::int64_t i) {
      encode(files, batch[static_cast<std::size_t>(i)], options, tokenizer, special_tokens);
    });
    for (Work& work : batch) {
      if (work.error) {
        if (!work.is_json || !options.skip_bad_lines) throw *work.error;
        counts += {.bad_lines = 1, .first_bad_lines = {work.error->what()}};
        TRIREME_CHECK(counts.bad_lines <= options.max_bad_lines, DataError,
                      "more than {} bad lines, the last: {}; <max_bad_lines> allows more", options.max_bad_lines,
                      work.error->what());
        continue;
      }
      const std::span<const std::int32_t> ids = work.ids;
      // The last sentence of a document includes its end-of-document token.
      for (std::size_t i = 0, begin = 0; i < work.sentence_ends.size(); begin = work.sentence_ends[i++]) {
        writer->end_sentence();
        writer->append(ids.subspan(begin, work.sentence_ends[i] - begin));
      }
      if (!options.split_sentences) writer->append(ids);
      counts += {.text_bytes = work.text_bytes, .forced_cuts = work.forced_cuts, .special_tokens = work.special_tokens};
      if (!work.ends_document) continue;
      if (writer->document_tokens() == 0 && !writer->inside_first()) {
        ++counts.empty_documents;
        continue;
      }
      if (options.append_end_of_document) writer->append({&end_of_document, 1});
      if (options.split_sentences) writer->end_sentence();
      writer->end_document();
    }
    progress(reader.bytes_read());
  }
  counts.forced_cuts += reader.forced_cuts();
  writer->finish(counts);
}

}  // namespace trireme::prepare
