#include "src/prepare/tokenize_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/sentence_splitter.hpp"

namespace trireme::prepare {
namespace {

constexpr std::int64_t read_bytes = std::int64_t{1} << 16;
constexpr std::int64_t context_bytes = 4096;  // around a cut, for `can_cut`

std::string read_range(const InputFiles& files, const FileRange& range) {
  std::string bytes(static_cast<std::size_t>(range.end - range.begin), '\0');
  bytes.resize(files.open(range)->read(bytes.data(), bytes.size()));
  return bytes;
}

/// Returns the first byte from `at` on, 0 < at < size, where the text may be cut, or the forced cut; `size` if the text
/// ends first.
std::int64_t cut_of_text(const InputFiles& files, const std::string& path, std::int64_t at, std::int64_t size,
                         const TextReaderOptions& options, bool& forced) {
  const std::int64_t begin = std::max<std::int64_t>(0, at - context_bytes);
  const std::int64_t last = std::min(size, at + options.max_uncut_bytes);
  for (std::int64_t seen = at; seen < last;) {  // usually the first few bytes suffice
    const std::int64_t end = seen == at ? std::min(at + read_bytes, last) : last;
    const std::string text = read_range(files, {path, begin, std::min(end + context_bytes, size)});
    for (; seen < end; ++seen) {
      if (options.can_cut(text, static_cast<std::size_t>(seen - begin))) return seen;
    }
    if (end < last) continue;
    if (last == size) return size;
    forced = true;
    const auto min_cut = static_cast<std::size_t>(at - begin);
    return begin + static_cast<std::int64_t>(character_begin(text, static_cast<std::size_t>(last - begin), min_cut));
  }
  return size;
}

constexpr std::size_t max_first_bad_lines = 5;

/// Tokens of a piece of text.
struct EncodedPiece {
  std::vector<std::int32_t> ids = {};
  std::vector<std::size_t> sentence_ends = {};   // among the ids
  std::vector<data::LearnedRange> learned = {};  // likewise
  std::int64_t text_bytes = 0;
  std::int64_t forced_cuts = 0;
  data::SpellingCounts special_tokens = {};
  std::optional<DataError> error = {};
};

/// Encodes pieces of text.
class PieceEncoder {
 public:
  PieceEncoder(const Files& files, const CorpusTextOptions& options, const data::Tokenizer& tokenizer)
      : files_(files), options_(options), tokenizer_(tokenizer), finder_(tokenizer), parser_(tokenizer) {}

  EncodedPiece encode(TextPiece& piece) const {
    EncodedPiece work;
    try {
      if (options_.chat) {
        encode_chat(piece, work);
        return work;
      }
      const std::string text = text_of(files_, piece, options_.reader);
      work.text_bytes = static_cast<std::int64_t>(text.size());
      finder_.count(text, work.special_tokens);
      if (options_.special_names == SpecialNames::refuse) refuse_special(piece, text, work.special_tokens);
      for (std::string_view rest = text; !rest.empty();) {
        const CutPoint cut = first_cut(rest, options_.reader);
        work.forced_cuts += cut.forced ? 1 : 0;
        const bool begins_document = rest.size() == text.size() && (piece.is_json || piece.position == 0);
        if (options_.split_sentences) {
          encode_sentences(rest.substr(0, cut.position), begins_document, work);
        } else {
          encode_part(rest.substr(0, cut.position), begins_document, work.ids);
        }
        rest.remove_prefix(cut.position);
      }
    } catch (const DataError& error) {
      work.error = error;
    }
    return work;
  }

 private:
  static void refuse_special(const TextPiece& piece, const std::string& text, const data::SpellingCounts& found) {
    if (found.empty()) return;
    std::int64_t before = piece.lines_before ? piece.lines_before->count() : 0;
    if (!piece.is_json) before = static_cast<std::int64_t>(text.find(found.begin()->first));
    throw DataError(
        "{}:{}{}: the text contains '{}', the name of a special token. <special_tokens_in_text> text or "
        "parse takes it as text or as the token",
        piece.path, piece.is_json ? "" : "byte ", piece.position + before, found.begin()->first);
  }

  void encode_part(std::string_view text, bool begins_document, std::vector<std::int32_t>& ids) const {
    if (options_.special_names == SpecialNames::parse) {
      parser_.encode(text, begins_document, ids);
    } else if (begins_document) {
      tokenizer_.encode(text, ids);
    } else {
      tokenizer_.encode_continuation(text, ids);
    }
  }

  /// Encodes the text of a conversation, in which names of special tokens are these tokens.
  void encode_chat(TextPiece& piece, EncodedPiece& work) const {
    check_bytes(piece, options_.reader);
    read_line(piece, [&](std::int64_t line) {
      const std::string where = fmt::format("{}:{}", piece.path, line);
      const data::jinja::Rendering chat = options_.chat->render(piece.bytes, where);
      std::vector<std::size_t> places;
      for (const auto& [begin, end] : chat.generated) places.insert(places.end(), {begin, end});
      work = {.text_bytes = std::ssize(chat.text)};
      try {
        const std::vector<std::size_t> counts = parser_.encode(chat.text, places, work.ids);
        for (std::size_t i = 0; i < counts.size(); i += 2) {
          const auto begin = static_cast<std::int64_t>(counts[i]), end = static_cast<std::int64_t>(counts[i + 1]);
          if (begin < end) work.learned.push_back({begin, end});
        }
        TRIREME_CHECK(!work.learned.empty(), DataError, "no token begins within the words of the assistant");
      } catch (const DataError& error) {
        throw DataError("{}: {}", where, error.what());
      }
    });
  }

  void encode_sentences(std::string_view text, bool begins_document, EncodedPiece& work) const {
    std::size_t begin = 0;
    for (const std::size_t end : data::sentence_ends(text)) {
      encode_part(text.substr(begin, end - begin), begins_document && begin == 0, work.ids);
      work.sentence_ends.push_back(work.ids.size());
      begin = end;
    }
  }

  const Files& files_;
  const CorpusTextOptions& options_;
  const data::Tokenizer& tokenizer_;
  data::SpecialTokenFinder finder_;
  data::SpecialTokenParser parser_;
};

/// Pieces of a range that are encoded together; none at its end.
struct Batch {
  std::vector<TextPiece> pieces;
  std::int64_t bytes_read = 0;   // bytes of the range read so far
  std::int64_t forced_cuts = 0;  // forced cuts in these bytes
};

/// Reads batches of ranges, one range after another.
class BatchReader {
 public:
  BatchReader(const Files& files, const std::vector<RangePart>& parts, const TextReaderOptions& options,
              std::int64_t batch_bytes)
      : files_(files), parts_(parts), options_(options), batch_bytes_(batch_bytes) {}

  Batch next() {
    if (!reader_) reader_.emplace(files_, parts_[number_++].range->files, options_);
    Batch batch{.pieces = read_batch(*reader_, batch_bytes_)};
    batch.bytes_read = reader_->bytes_read();
    batch.forced_cuts = reader_->forced_cuts();
    if (batch.pieces.empty()) reader_.reset();
    return batch;
  }
  bool has_next() const { return reader_ || number_ < parts_.size(); }

 private:
  const Files& files_;
  const std::vector<RangePart>& parts_;
  const TextReaderOptions& options_;
  std::int64_t batch_bytes_;
  std::size_t number_ = 0;  // number of the next range
  std::optional<TextReader> reader_;
};

/// Part in progress, which takes the tokens of a range's pieces in their order.
class PartBuilder {
 public:
  PartBuilder(const Files& files, const RangePart& part, const CorpusTextOptions& options,
              const data::Tokenizer& tokenizer)
      : options_(options),
        end_of_document_(tokenizer.end_of_document()),
        stops_(tokenizer.stops()),
        writer_(files.corpora->create_part(part.path, tokenizer.vocabulary_size(), part.range->begins_inside_document)),
        counts_{.forced_cuts = part.range->forced_cuts} {}

  void add(const TextPiece& piece, const EncodedPiece& work) {
    if (work.error) {
      skip(piece, *work.error);
      return;
    }
    const std::span<const std::int32_t> ids = work.ids;
    // The first sentence of a document includes its beginning, the last one its end-of-document token.
    for (std::size_t i = 0, begin = 0; i < work.sentence_ends.size(); begin = work.sentence_ends[i++]) {
      writer_->end_sentence();
      append(ids.subspan(begin, work.sentence_ends[i] - begin));
    }
    for (const data::LearnedRange& range : work.learned) learn(range, ids);
    if (!options_.split_sentences) append(ids);
    counts_ += {.text_bytes = work.text_bytes, .forced_cuts = work.forced_cuts, .special_tokens = work.special_tokens};
    if (piece.ends_document) end_document();
  }

  /// Completes the file. `forced_cuts` are those of the reader.
  void finish(std::int64_t forced_cuts) {
    counts_.forced_cuts += forced_cuts;
    writer_->finish(counts_);
  }

 private:
  void skip(const TextPiece& piece, const DataError& error) {
    if (!piece.is_json || !options_.skip_bad_lines) throw error;
    counts_ += {.bad_lines = 1, .first_bad_lines = {error.what()}};
    TRIREME_CHECK(counts_.bad_lines <= options_.max_bad_lines, DataError,
                  "more than {} bad lines, the last: {}; <max_bad_lines> allows more", options_.max_bad_lines,
                  error.what());
  }

  void append(std::span<const std::int32_t> ids) {
    const bool begins_document = writer_->document_tokens() == 0 && !writer_->inside_first();
    if (options_.beginning && begins_document && !ids.empty()) writer_->append({&*options_.beginning, 1});
    writer_->append(ids);
  }

  void learn(data::LearnedRange range, std::span<const std::int32_t> ids) {
    const std::int64_t before = writer_->summary().tokens;
    writer_->learn({before + range.begin, before + range.end});
    counts_.learned_tokens += range.end - range.begin;
    const auto learned =
        ids.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - range.begin));
    const bool stops_there = std::ranges::any_of(
        stops_, [&](std::int32_t stop) { return std::ranges::find(learned, stop) != learned.end(); });
    counts_.learned_stops += stops_there ? 1 : 0;
  }

  void end_document() {
    if (writer_->document_tokens() == 0 && !writer_->inside_first()) {
      ++counts_.empty_documents;
      return;
    }
    if (options_.append_end_of_document) writer_->append({&end_of_document_, 1});
    if (options_.split_sentences) writer_->end_sentence();
    writer_->end_document();
  }

  const CorpusTextOptions& options_;
  std::int32_t end_of_document_;
  std::vector<std::int32_t> stops_;
  std::unique_ptr<PartWriter> writer_;
  CorpusTextCounts counts_;
};

}  // namespace

std::vector<InputRange> cut_input(const Files& files, const std::vector<std::string>& paths,
                                  const TextReaderOptions& options, std::int64_t range_bytes,
                                  const std::string& purpose) {
  const TextReader checked(files, paths, options);  // finds unreadable input before any work is done
  const std::string head = fmt::format("{}\nkey {}\nUTF-8 {}\nrun {}\nline {}\n", purpose, options.json_key,
                                       options.check_utf8, options.max_uncut_bytes, options.max_bytes);
  std::vector<InputRange> ranges;
  std::string description;  // input of the digest
  InputRange range;
  const auto close = [&](InputRange next) {
    if (!range.files.empty()) {
      range.digest = digest(description.data(), description.size());
      ranges.push_back(std::move(range));
    }
    range = std::move(next);
    description = head;
  };
  close({});
  for (const std::string& path : paths) {
    const InputFileInfo file = files.inputs->inspect(path);
    const std::int64_t size = file.size_bytes;
    const bool is_json = is_read_as_json(file, path, options.format);
    for (std::int64_t begin = 0, end = 0; begin == 0 || begin < size; begin = end) {
      end = size;
      InputRange next{.begins_inside_document = !is_json};
      const std::int64_t wanted = begin + range_bytes - range.bytes;
      if (file.is_divisible && wanted < size) {
        bool forced = false;
        end = is_json ? line_begin(files, path, file, wanted)
                      : cut_of_text(*files.inputs, path, wanted, size, options, forced);
        next.forced_cuts = forced ? 1 : 0;
      }
      range.files.push_back({path, begin, end, file.identity});
      range.bytes += end - begin;
      description += fmt::format("{} {} {} {}\n", file.identity, is_json ? "lines" : "text", begin, end);
      if (end < size) {
        close(next);
      } else if (range.bytes >= range_bytes) {
        close({});
      }
      if (size == 0) break;
    }
  }
  close({});
  return ranges;
}

CorpusTextCounts& CorpusTextCounts::operator+=(const CorpusTextCounts& other) {
  text_bytes += other.text_bytes;
  empty_documents += other.empty_documents;
  forced_cuts += other.forced_cuts;
  bad_lines += other.bad_lines;
  learned_tokens += other.learned_tokens;
  learned_stops += other.learned_stops;
  for (const std::string& line : other.first_bad_lines) {
    if (first_bad_lines.size() < max_first_bad_lines) first_bad_lines.push_back(line);
  }
  for (const auto& [spelling, count] : other.special_tokens) special_tokens[spelling] += count;
  return *this;
}

void tokenize_ranges(const Files& files, const std::vector<RangePart>& parts, const CorpusTextOptions& options,
                     const data::Tokenizer& tokenizer, ThreadPool& pool, const RangeProgress& progress) {
  const PieceEncoder encoder(files, options, tokenizer);
  // Enough to keep all threads busy: pieces of text are a MiB, lines of JSON may be short.
  BatchReader reader(files, parts, options.reader, options.reader.piece_bytes * 2 * pool.threads());
  // Their destructors wait: `reader` outlives both.
  std::future<Batch> next;
  std::future<void> finishing;
  const auto read_next = [&] {
    if (reader.has_next()) next = std::async(std::launch::async, [&] { return reader.next(); });
  };
  read_next();
  for (std::size_t number = 0; number < parts.size() && progress.read(number, 0); ++number) {
    auto part = std::make_unique<PartBuilder>(files, parts[number], options, tokenizer);
    for (;;) {
      Batch batch = next.get();
      read_next();
      if (batch.pieces.empty()) {
        if (finishing.valid()) finishing.get();
        finishing = std::async(std::launch::async, [&, number, part = std::move(part), cuts = batch.forced_cuts] {
          part->finish(cuts);
          if (progress.made) progress.made(number);
        });
        break;
      }
      std::vector<EncodedPiece> encoded(batch.pieces.size());
      pool.parallel_for(std::ssize(encoded), [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        encoded[at] = encoder.encode(batch.pieces[at]);
      });
      for (std::size_t i = 0; i < encoded.size(); ++i) part->add(batch.pieces[i], encoded[i]);
      progress.read(number, batch.bytes_read);
    }
  }
  if (finishing.valid()) finishing.get();
}

}  // namespace trireme::prepare
