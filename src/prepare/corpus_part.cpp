#include "src/prepare/corpus_part.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/corpus/corpus_format.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file_access.hpp"
#include "io/posix/file_output.hpp"
#include "io/posix/spool.hpp"
#include "src/base/check.hpp"
#include "src/data/text/sentence_splitter.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::size_t max_first_bad_lines = 5;
constexpr std::size_t ends_at_once = 1 << 16;
constexpr std::uint64_t magic = 0x74726150656D6572;  // "remePart"
const std::map<CorpusPart::Section, const char*> digest_names = {
    {CorpusPart::Section::tokens, "tokens_digest"},
    {CorpusPart::Section::ends, "ends_digest"},
    {CorpusPart::Section::sentence_ends, "sentences_digest"}};

std::string damage(const std::string& path) { return path + " is damaged; delete it and build again"; }

/// A piece and what a thread made of it.
struct Work {
  TextPiece piece;
  bool is_json = false;
  bool ends_document = false;
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> sentence_ends;  // among the ids
  std::int64_t text_bytes = 0;
  std::int64_t cut_runs = 0;
  data::SpellingCounts special_tokens;
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

void encode(Work& work, const CorpusTextOptions& text_options, const data::Tokenizer& tokenizer,
            const data::SpecialTokenFinder& special_tokens) {
  const TextReaderOptions& options = text_options.reader;
  try {
    const std::string text = text_of(std::move(work.piece), options);
    work.text_bytes = static_cast<std::int64_t>(text.size());
    special_tokens.count(text, work.special_tokens);
    for (std::string_view rest = text; !rest.empty();) {
      const TextCut cut = cut_text(rest, options);
      work.cut_runs += cut.forced ? 1 : 0;
      if (text_options.split_sentences) {
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

/// Numbers on the disk until they are all known.
class SpooledNumbers {
 public:
  explicit SpooledNumbers(const std::string& path) : spool_(path) {}
  void push(std::int64_t number) {
    recent_.push_back(number);
    if (recent_.size() == ends_at_once) flush();
  }
  void copy_to(FileOutput& output) {
    flush();
    std::vector<std::byte> part;
    for (std::int64_t begin = 0; begin < spool_.size_bytes(); begin += static_cast<std::int64_t>(part.size())) {
      part.resize(std::min(ends_at_once * sizeof(std::int64_t), static_cast<std::size_t>(spool_.size_bytes() - begin)));
      spool_.read(begin, part.data(), part.size());
      output.write_bytes(part);
    }
  }
  std::string digest() const { return digest_.hex(); }

 private:
  void flush() {
    spool_.append(recent_.data(), recent_.size() * sizeof(recent_[0]));
    digest_.update(recent_.data(), recent_.size() * sizeof(recent_[0]));
    recent_.clear();
  }
  Spool spool_;
  std::vector<std::int64_t> recent_;
  Digest digest_;
};

class PartWriter {
 public:
  PartWriter(const std::string& path, const InputPart& part, const data::Tokenizer& tokenizer)
      : vocabulary_size_(tokenizer.vocabulary_size()),
        file_(path),
        output_(file_.path()),
        ends_(file_.path() + ".ends"),
        sentence_ends_(file_.path() + ".sentences") {
    summary_.begins_inside_document = part.begins_inside_document;
  }

  void append(std::span<const std::int32_t> ids) {
    const std::size_t element_bytes = size_of(token_type(vocabulary_size_));
    packed_.resize(ids.size() * element_bytes);
    std::byte* out = packed_.data();
    for (const std::int32_t id : ids) {
      TRIREME_CHECK(id >= 0 && id < vocabulary_size_, DataError, "token {} is not in the vocabulary of {} ids", id,
                    vocabulary_size_);
      summary_.max_id = std::max<std::int64_t>(summary_.max_id, id);
      std::memcpy(out, &id, element_bytes);  // little-endian: the lower bytes come first
      out += element_bytes;
    }
    output_.write_bytes(packed_);
    tokens_digest_.update(packed_.data(), packed_.size());
    summary_.tokens += static_cast<std::int64_t>(ids.size());
  }
  std::int64_t document_tokens() const { return summary_.tokens - summary_.last_end; }
  /// Returns whether the current document began in an earlier part.
  bool inside_first() const { return summary_.begins_inside_document && summary_.ends == 0; }

  void end_document() {
    if (summary_.ends++ == 0) summary_.first_end = summary_.tokens;
    summary_.last_end = summary_.tokens;
    ends_.push(summary_.tokens);
  }
  /// Ends the current sentence; an empty one counts for nothing.
  void end_sentence() {
    const std::int64_t last = summary_.sentence_ends > 0 ? last_sentence_end_ : inside_first() ? -1 : 0;
    if (summary_.tokens == last) return;
    last_sentence_end_ = summary_.tokens;
    ++summary_.sentence_ends;
    sentence_ends_.push(summary_.tokens);
  }

  void finish(const CorpusTextCounts& counts) {
    ends_.copy_to(output_);
    sentence_ends_.copy_to(output_);
    const json summary{{"tokens", summary_.tokens},
                       {"token_bytes", size_of(token_type(vocabulary_size_))},
                       {"ends", summary_.ends},
                       {"first_end", summary_.first_end},
                       {"last_end", summary_.last_end},
                       {"sentence_ends", summary_.sentence_ends},
                       {"greatest_id", summary_.max_id},
                       {"begins_inside_document", summary_.begins_inside_document},
                       {"text_bytes", counts.text_bytes},
                       {"empty_documents", counts.empty_documents},
                       {"cut_runs", counts.cut_runs},
                       {"bad_lines", counts.bad_lines},
                       {"first_bad_lines", counts.first_bad_lines},
                       {"special_tokens", counts.special_tokens},
                       {"tokens_digest", tokens_digest_.hex()},
                       {"ends_digest", ends_.digest()},
                       {"sentences_digest", sentence_ends_.digest()}};
    // Messages quote what was wrong in the text, which need not be UTF-8.
    const std::string text = summary.dump(-1, ' ', false, json::error_handler_t::replace);
    output_.write_bytes(std::as_bytes(std::span(text)));
    output_.write(static_cast<std::uint64_t>(text.size()));
    output_.write(magic);
    output_.close();
    file_.commit();
  }

 private:
  std::int64_t vocabulary_size_;
  TemporaryFile file_;
  FileOutput output_;
  SpooledNumbers ends_;
  SpooledNumbers sentence_ends_;
  std::vector<std::byte> packed_;
  Digest tokens_digest_;
  std::int64_t last_sentence_end_ = 0;
  CorpusPart::Summary summary_;
};

}  // namespace

CorpusTextCounts& CorpusTextCounts::operator+=(const CorpusTextCounts& other) {
  text_bytes += other.text_bytes;
  empty_documents += other.empty_documents;
  cut_runs += other.cut_runs;
  bad_lines += other.bad_lines;
  for (const std::string& line : other.first_bad_lines) {
    if (first_bad_lines.size() < max_first_bad_lines) first_bad_lines.push_back(line);
  }
  for (const auto& [spelling, count] : other.special_tokens) special_tokens[spelling] += count;
  return *this;
}

void tokenize_part(const InputPart& part, const CorpusTextOptions& options, const data::Tokenizer& tokenizer,
                   ThreadPool& pool, const std::string& path, const std::function<void(std::int64_t)>& progress) {
  TextReader reader(part.ranges, options.reader);
  PartWriter writer(path, part, tokenizer);
  CorpusTextCounts counts{.cut_runs = part.cut_runs};
  const std::int32_t end_of_document = tokenizer.end_of_document();
  const data::SpecialTokenFinder special_tokens(tokenizer);
  const auto batch_bytes = options.reader.piece_bytes * 2 * pool.threads();
  for (;;) {
    std::vector<Work> batch = read_batch(reader, batch_bytes);
    if (batch.empty()) break;
    pool.parallel_for(static_cast<std::int64_t>(batch.size()), [&](std::int64_t i) {
      encode(batch[static_cast<std::size_t>(i)], options, tokenizer, special_tokens);
    });
    for (Work& work : batch) {
      if (work.error) {
        if (!work.is_json || !options.skip_bad_lines) throw *work.error;
        counts += {.bad_lines = 1, .first_bad_lines = {work.error->what()}};
        TRIREME_CHECK(counts.bad_lines <= options.max_bad_lines, DataError,
                      "more than {} bad lines, the last: {}; --max-bad-lines allows more", options.max_bad_lines,
                      work.error->what());
        continue;
      }
      const std::span<const std::int32_t> ids = work.ids;
      // The last sentence of a document takes the token that ends it.
      for (std::size_t i = 0, begin = 0; i < work.sentence_ends.size(); begin = work.sentence_ends[i++]) {
        writer.end_sentence();
        writer.append(ids.subspan(begin, work.sentence_ends[i] - begin));
      }
      if (!options.split_sentences) writer.append(ids);
      counts += {.text_bytes = work.text_bytes, .cut_runs = work.cut_runs, .special_tokens = work.special_tokens};
      if (!work.ends_document) continue;
      if (writer.document_tokens() == 0 && !writer.inside_first()) {
        ++counts.empty_documents;
        continue;
      }
      if (options.append_end_of_document) writer.append({&end_of_document, 1});
      if (options.split_sentences) writer.end_sentence();
      writer.end_document();
    }
    progress(reader.bytes_read());
  }
  counts.cut_runs += reader.cut_runs();
  writer.finish(counts);
}

CorpusPart::CorpusPart(std::string path, Section section)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status {};
  TRIREME_CHECK(file_ && fstat(file_.get(), &status) == 0, IoError, "cannot open {}: {}", path_, std::strerror(errno));
  struct {
    std::uint64_t summary_bytes;
    std::uint64_t magic;
  } tail{};
  const std::int64_t before_tail = status.st_size - static_cast<std::int64_t>(sizeof(tail));
  const std::string damaged = damage(path_);
  TRIREME_CHECK(before_tail >= 0, DataError, "{}", damaged);
  read_at(file_.get(), path_, reinterpret_cast<char*>(&tail), sizeof(tail), before_tail);
  TRIREME_CHECK(tail.magic == magic && tail.summary_bytes <= static_cast<std::uint64_t>(before_tail), DataError, "{}",
                damaged);
  std::string text(static_cast<std::size_t>(tail.summary_bytes), '\0');
  const std::int64_t payload_bytes = before_tail - static_cast<std::int64_t>(tail.summary_bytes);
  read_at(file_.get(), path_, text.data(), text.size(), payload_bytes);
  std::int64_t tokens_bytes = 0;
  try {
    const json value = json::parse(text);
    value.at("tokens").get_to(summary_.tokens);
    value.at("ends").get_to(summary_.ends);
    value.at("first_end").get_to(summary_.first_end);
    value.at("last_end").get_to(summary_.last_end);
    value.at("sentence_ends").get_to(summary_.sentence_ends);
    value.at("greatest_id").get_to(summary_.max_id);
    value.at("begins_inside_document").get_to(summary_.begins_inside_document);
    value.at("text_bytes").get_to(summary_.counts.text_bytes);
    value.at("empty_documents").get_to(summary_.counts.empty_documents);
    value.at("cut_runs").get_to(summary_.counts.cut_runs);
    value.at("bad_lines").get_to(summary_.counts.bad_lines);
    value.at("first_bad_lines").get_to(summary_.counts.first_bad_lines);
    value.at("special_tokens").get_to(summary_.counts.special_tokens);
    tokens_bytes = summary_.tokens * value.at("token_bytes").get<std::int64_t>();
    value.at(digest_names.at(section)).get_to(expected_digest_);
  } catch (const json::exception&) {
    throw DataError("{}", damaged);
  }
  constexpr std::int64_t end_bytes = sizeof(std::int64_t);
  sentences_begin_ = tokens_bytes + summary_.ends * end_bytes;
  TRIREME_CHECK(payload_bytes == sentences_begin_ + summary_.sentence_ends * end_bytes, DataError, "{}", damaged);
  position_ = section == Section::tokens ? 0 : section == Section::ends ? tokens_bytes : sentences_begin_;
  end_ = section == Section::tokens ? tokens_bytes : section == Section::ends ? sentences_begin_ : payload_bytes;
}

std::size_t CorpusPart::read(std::span<std::byte> out) {
  const std::size_t size_bytes = std::min(out.size(), static_cast<std::size_t>(end_ - position_));
  if (size_bytes == 0) return 0;
  read_at(file_.get(), path_, reinterpret_cast<char*>(out.data()), size_bytes, position_);
  position_ += static_cast<std::int64_t>(size_bytes);
  digest_.update(out.data(), size_bytes);
  TRIREME_CHECK(position_ < end_ || digest_.hex() == expected_digest_, DataError, "{}", damage(path_));
  return size_bytes;
}

std::int64_t CorpusPart::sentence_end(std::int64_t i) const {
  std::int64_t end = 0;
  read_at(file_.get(), path_, reinterpret_cast<char*>(&end), sizeof(end),
          sentences_begin_ + i * static_cast<std::int64_t>(sizeof(end)));
  return end;
}

}  // namespace trireme::io
