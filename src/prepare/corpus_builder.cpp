#include "src/prepare/corpus_builder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/prepare/token_copy.hpp"

namespace trireme::prepare {
namespace {

constexpr const char* parts_suffix = ".parts";
constexpr const char* stop_name = "stop";      // created by a failed rank to stop the others
constexpr const char* corpus_name = "corpus";  // file in progress
constexpr double look_interval_s = 1;

/// Returns the ranges without a part that rank `rank` tokenizes. Assigns the next largest to each rank in turn, to
/// balance the bytes.
std::vector<std::size_t> ranges_of_rank(int rank, int ranks, const std::vector<InputRange>& ranges,
                                        std::vector<std::size_t> missing) {
  std::ranges::stable_sort(missing, std::greater(), [&](std::size_t i) { return ranges[i].bytes; });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<std::size_t> own;
  for (const std::size_t i : missing) {
    const auto least = std::ranges::min_element(loads);
    *least += ranges[i].bytes;
    if (least - loads.begin() == rank) own.push_back(i);
  }
  std::ranges::sort(own);
  return own;
}

/// Progress of all ranks together: the bytes this rank has read, and the finished parts in the folder.
class Progress {
 public:
  Progress(const WorkFiles& files, const std::vector<InputRange>& ranges, const std::vector<std::string>& paths,
           const ByteProgress& report)
      : files_(files), ranges_(ranges), paths_(paths), report_(report), done_(ranges.size(), false) {
    for (const InputRange& range : ranges) total_ += range.bytes;
    look();
    report_(whole_bytes_, total_);
  }
  void update(std::size_t own_range, std::int64_t bytes) {
    if (since_look_.elapsed_s() > look_interval_s) look();
    // A part that is complete, but not yet in the folder, does not count.
    shown_ = std::max(shown_, std::min(total_, whole_bytes_ + (done_[own_range] ? 0 : bytes)));
    report_(shown_, total_);
  }
  void look() {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      if (done_[i] || !files_.exists(paths_[i])) continue;
      done_[i] = true;
      whole_bytes_ += ranges_[i].bytes;
    }
    since_look_ = Timer();
  }

 private:
  const WorkFiles& files_;
  const std::vector<InputRange>& ranges_;
  const std::vector<std::string>& paths_;
  const ByteProgress& report_;
  std::vector<bool> done_;
  std::int64_t whole_bytes_ = 0;
  std::int64_t shown_ = 0;
  std::int64_t total_ = 0;
  Timer since_look_;
};

/// Stretch of the corpus that comes from one part.
struct JoinedPart {
  PartSummary part;
  std::int64_t first_token = 0;  // 1 if an empty document's end-of-document token is left out
  std::int64_t first_end = 0;    // 1 if that document's end is
  std::int64_t first_sentence_end = 0;
  std::int64_t begin = 0;  // in the corpus
};

/// Joins parts into one corpus, in their order.
class Joiner {
 public:
  Joiner(const Corpora& corpora, const std::vector<std::string>& paths, const CorpusTextOptions& options)
      : corpora_(corpora), paths_(paths) {
    std::int64_t carried = 0;  // tokens of the document continued in the next part
    std::int64_t last_sentence_end = 0;
    for (const std::string& path : paths) {
      const auto part = corpora.open_part(path, PartSection::tokens, 0);
      JoinedPart joined{.part = part->summary(), .begin = contents_.tokens};
      const std::int64_t mark = options.append_end_of_document ? 1 : 0;
      report_.counts += joined.part.counts;
      if (joined.part.begins_inside_document && joined.part.ends > 0 && carried + joined.part.first_end == mark) {
        ++report_.counts.empty_documents;  // nor do earlier parts contain any of its tokens
        joined.first_token = mark;
        joined.first_end = 1;
      }
      const auto sentence_end = [&](std::int64_t i) {
        return joined.begin - joined.first_token + part->sentence_end(i);
      };
      const std::int64_t sentences = joined.part.sentence_ends;
      while (joined.first_sentence_end < sentences && sentence_end(joined.first_sentence_end) <= last_sentence_end) {
        ++joined.first_sentence_end;
      }
      if (sentences > 0) last_sentence_end = std::max(last_sentence_end, sentence_end(sentences - 1));
      contents_.sentences += joined.part.sentence_ends - joined.first_sentence_end;
      contents_.tokens += joined.part.tokens - joined.first_token;
      contents_.documents += joined.part.ends - joined.first_end;
      if (options.chat) contents_.learned_ranges = contents_.learned_ranges.value_or(0) + joined.part.learned_ranges;
      contents_.max_id = std::max(contents_.max_id, joined.part.max_id);
      carried = joined.part.tokens - joined.part.last_end + (joined.part.ends == 0 ? carried : 0);
      parts_.push_back(joined);
    }
    report_.tokens = contents_.tokens;
    report_.documents = contents_.documents;
    report_.sentences = contents_.sentences;
  }

  const CorpusBuildReport& report() const { return report_; }

  /// Begins the corpus, to which all ranks copy its tokens.
  std::unique_ptr<CorpusFrame> begin(const std::string& path, const data::Tokenizer& tokenizer) {
    contents_.next_document_offsets = offsets(section(PartSection::ends, &JoinedPart::first_end));
    contents_.next_sentence_offsets = offsets(section(PartSection::sentence_ends, &JoinedPart::first_sentence_end));
    contents_.next_learned_ranges = section(PartSection::learned_ranges, nullptr);
    return corpora_.begin(path, tokenizer, contents_);
  }
  std::vector<TakenTokens> taken() const {
    std::vector<TakenTokens> taken;
    for (const JoinedPart& joined : parts_) taken.push_back({joined.first_token, joined.begin});
    return taken;
  }

 private:
  /// Returns the concatenated sections of the parts, each from its element `first` on, or all; ends count from the
  /// beginning of the corpus.
  CorpusContents::Next section(PartSection section, std::int64_t JoinedPart::*first) const {
    return [this, section, first, index = std::size_t{0},
            part = std::shared_ptr<PartReader>()](std::span<std::byte> out) mutable {
      while (!out.empty()) {
        const JoinedPart& joined = parts_[index];
        if (!part) part = corpora_.open_part(paths_[index], section, first == nullptr ? 0 : joined.*first);
        const std::size_t got = part->read(out);
        add(out.first(got), joined.begin - joined.first_token);
        out = out.subspan(got);
        if (got == 0) {
          part.reset();
          ++index;
        }
      }
    };
  }

  static void add(std::span<std::byte> offsets, std::int64_t added) {
    for (std::size_t i = 0; i < offsets.size(); i += sizeof(added)) {
      std::int64_t offset = 0;
      std::memcpy(&offset, &offsets[i], sizeof(offset));
      offset += added;
      std::memcpy(&offsets[i], &offset, sizeof(offset));
    }
  }

  /// Returns 0 followed by the values of `next`.
  static CorpusContents::Next offsets(CorpusContents::Next next) {
    return [next = std::move(next), at_start = true](std::span<std::byte> out) mutable {
      if (std::exchange(at_start, false)) {
        constexpr std::size_t offset_bytes = sizeof(std::int64_t);
        std::memset(out.data(), 0, offset_bytes);
        out = out.subspan(offset_bytes);
      }
      next(out);
    };
  }

  const Corpora& corpora_;
  const std::vector<std::string>& paths_;
  std::vector<JoinedPart> parts_;
  CorpusContents contents_;
  CorpusBuildReport report_;
};

std::vector<std::size_t> numbers_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::size_t> numbers;
  for (std::size_t number = 0; stream >> number;) numbers.push_back(number);
  return numbers;
}

/// Returns the indices of the paths without a file.
std::vector<std::size_t> missing_of(const WorkFiles& files, const std::vector<std::string>& paths) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!files.exists(paths[i])) missing.push_back(i);
  }
  if (missing.size() < paths.size()) {
    log::info("reusing {} of {} parts of an earlier build", paths.size() - missing.size(), paths.size());
  }
  return missing;
}

/// Throws if the corpus would be empty or has too many bad lines.
void check_report(const CorpusBuildReport& report, const CorpusTextOptions& options, std::int64_t input_bytes,
                  WorkFolder& folder) {
  TRIREME_CHECK(report.counts.bad_lines <= options.max_bad_lines, DataError,
                "{} bad lines, more than the {} that <max_bad_lines> allows, the first: {}", report.counts.bad_lines,
                options.max_bad_lines, report.counts.first_bad_lines.front());
  if (report.tokens == 0) folder.keep_none();  // such parts are useless
  TRIREME_CHECK(report.tokens > 0, DataError, "the input of {} bytes holds no text: {} empty documents, {} bad lines",
                input_bytes, report.counts.empty_documents, report.counts.bad_lines);
}

}  // namespace

CorpusBuildReport build_corpus(const Files& files, const CorpusBuildOptions& options, const data::Tokenizer& tokenizer,
                               ThreadPool& pool, Communicator& comm, const ByteProgress& progress) {
  const bool leads = comm.rank() == 0;
  const std::string folder_path = options.output + parts_suffix;
  std::vector<InputRange> ranges;
  std::vector<std::string> paths;  // paths of their parts
  std::set<std::string> part_names;
  std::int64_t input_bytes = 0;
  collectively(comm, [&] {
    if (leads) {
      for (const std::string& input : options.inputs) files.inputs->check_different(input, options.output);
    }
    std::string purpose =
        fmt::format("trireme corpus part 4\ntokenizer {}\nappend {}\nskip {}\nsentences {}", tokenizer.digest(),
                    options.text.append_end_of_document, options.text.skip_bad_lines, options.text.split_sentences);
    if (options.text.beginning) purpose += fmt::format("\nbeginning {}", *options.text.beginning);
    if (options.text.chat) purpose += "\nchat " + options.text.chat->digest;
    if (options.text.special_names != SpecialNames::text) {
      purpose += fmt::format("\nspecial names {}", static_cast<int>(options.text.special_names));
    }
    ranges = cut_input(files, options.inputs, options.text.reader, options.part_bytes, purpose);
    for (const InputRange& range : ranges) {
      paths.push_back(folder_path + "/" + range.digest);
      part_names.insert(range.digest);
      input_bytes += range.bytes;
    }
  });
  check_same_everywhere(comm, "the input, its names, sizes and times", fmt::format("{}", fmt::join(paths, "\n")));

  std::unique_ptr<WorkFolder> folder;
  std::string missing_text;
  collectively(comm, [&] {
    if (!leads) return;
    folder = files.work->lock_folder(folder_path, options.output, part_names);
    missing_text = fmt::format("{}", fmt::join(missing_of(*files.work, paths), " "));
  });
  missing_text = broadcast_text(comm, missing_text, 0);

  collectively(comm, [&] {
    const std::string stop = folder_path + "/" + stop_name;
    const std::vector<std::size_t> own = ranges_of_rank(comm.rank(), comm.size(), ranges, numbers_in(missing_text));
    std::vector<RangePart> own_parts;
    for (const std::size_t i : own) own_parts.push_back({&ranges[i], paths[i]});
    const auto all = leads ? std::make_unique<Progress>(*files.work, ranges, paths, progress) : nullptr;
    try {
      tokenize_ranges(files, own_parts, options.text, tokenizer, pool, [&](std::size_t number, std::int64_t bytes) {
        if (bytes == 0) return comm.size() == 1 || !files.work->exists(stop);
        if (all) all->update(own[number], bytes);
        return true;
      });
    } catch (const Error&) {
      if (comm.size() > 1) files.work->touch(stop);
      throw;
    }
  });

  const std::string corpus = folder_path + "/" + corpus_name;
  CorpusBuildReport report;
  std::unique_ptr<Joiner> joiner;
  std::unique_ptr<CorpusFrame> frame;
  TokenCopy copy;
  const Timer timer;
  collectively(comm, [&] {
    if (!leads) return;
    progress(input_bytes, input_bytes);
    if (paths.size() > 1) log::info("joining {} parts", paths.size());
    joiner = std::make_unique<Joiner>(*files.corpora, paths, options.text);
    report = joiner->report();
    check_report(report, options.text, input_bytes, *folder);
    frame = joiner->begin(corpus, tokenizer);
    copy = {frame->blocks(), joiner->taken()};
  });
  copy = TokenCopy::from_text(broadcast_text(comm, copy.text(), 0));
  std::string own_digests;
  collectively(comm, [&] {
    std::vector<std::size_t> all(paths.size());
    std::iota(all.begin(), all.end(), 0);
    own_digests = copy.copy(files, paths, ranges_of_rank(comm.rank(), comm.size(), ranges, all), corpus, pool);
  });
  const std::vector<std::string> digests = gather_text(comm, own_digests, 0);
  collectively(comm, [&] {
    if (!leads) return;
    frame->finish(copy.digests(digests));
    files.work->commit(corpus, options.output);
    report.join_s = timer.elapsed_s();
    folder->keep_none();
  });
  return report;
}

}  // namespace trireme::prepare
