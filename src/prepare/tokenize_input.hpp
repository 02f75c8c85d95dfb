#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/thread_pool.hpp"
#include "src/data/template/template.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::prepare {

/// Part of the input that is tokenized separately: consecutive ranges of files.
struct InputRange {
  std::vector<FileRange> files = {};
  std::int64_t bytes = 0;  ///< on the disk
  bool begins_inside_document = false;
  std::int64_t forced_cuts = 0;  ///< 1 if it begins at a forced cut (`CutPoint`)
  std::string digest = {};       ///< digest of the options, and of names, sizes, times and ranges of its files
};

/// Cuts files into ranges of about `range_bytes` each: JSON after the end of a line, tables before a row group, texts
/// as `first_cut` does, indivisible files not at all. The cuts depend on nothing else, so every rank computes the same,
/// now or later. `purpose` lists everything else that a range's tokens depend on, for its digest. Throws as TextReader
/// does.
std::vector<InputRange> cut_input(const Files& files, const std::vector<std::string>& paths,
                                  const TextReaderOptions& options, std::int64_t range_bytes,
                                  const std::string& purpose);

/// Treatment of names of special tokens in texts: ordinary text, these tokens, or an error.
enum class SpecialNames { text, parse, refuse };

/// Conversion of conversations, lines of JSON, to text.
struct ChatForm {
  /// Returns the text of a line and the parts of it that are learned. Throws DataError that begins with `where`.
  std::function<data::jinja::Rendering(std::string_view line, const std::string& where)> render;
  std::string digest;  ///< digest of everything that the text depends on besides the line
};

/// Options of tokenization.
struct CorpusTextOptions {
  TextReaderOptions reader;
  std::optional<ChatForm> chat = {};    ///< documents are conversations; excludes the members up to `special_names`
  bool split_sentences = false;         ///< also keep sentences; `reader.can_cut` must then be `data::is_sentence_end`
  bool append_end_of_document = false;  ///< after every non-empty document
  std::optional<std::int32_t> beginning = {};       ///< id before every non-empty document
  SpecialNames special_names = SpecialNames::text;  ///< with `parse`, `reader.can_cut` must be the parser's
  bool skip_bad_lines = false;                      ///< skip bad lines of JSON; otherwise the first one is an error
  std::int64_t max_bad_lines = 1000;
};

/// Input range and the file of its part.
struct RangePart {
  const InputRange* range;
  std::string path;
};

/// Functions that are called with the number of a range.
struct RangeProgress {
  /// With the bytes of it read so far: at its beginning with 0, where it returns whether to go on, then periodically.
  std::function<bool(std::size_t, std::int64_t)> read;
  /// After its part was written, for one range after another, on a thread beside the next one.
  std::function<void(std::size_t)> made = nullptr;
};

/// Tokenizes input ranges into parts. All threads of `pool` encode pieces of text in batches, and the results are
/// written in order. The output is thus independent of the threads, and memory of the ranges. While a batch is encoded
/// the next one is read and the part before is synced to disk. Throws DataError (unreadable text, too many bad lines),
/// IoError.
void tokenize_ranges(const Files& files, const std::vector<RangePart>& parts, const CorpusTextOptions& options,
                     const data::Tokenizer& tokenizer, ThreadPool& pool, const RangeProgress& progress);

}  // namespace trireme::prepare
