#include "src/prepare/corpus_builder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/prepare/part_joiner.hpp"
#include "src/prepare/token_copy.hpp"

namespace trireme::prepare {
namespace {

constexpr const char* parts_suffix = ".parts";
constexpr const char* stop_name = "stop";    // created by a failed rank to stop the others
constexpr const char* frame_name = "frame";  // the corpus without its tokens
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

/// Sends the blocks of rank 0 to all ranks.
TokenBlocks broadcast_blocks(Communicator& comm, const TokenBlocks& blocks) {
  std::istringstream stream(broadcast_text(
      comm, fmt::format("{} {} {} {}", blocks.begin, blocks.token_bytes, blocks.block_tokens, blocks.tokens), 0));
  TokenBlocks sent;
  stream >> sent.begin >> sent.token_bytes >> sent.block_tokens >> sent.tokens;
  return sent;
}

/// Copies this rank's parts into the corpus, while later ones are made, and the rest at the end.
class OwnParts {
 public:
  OwnParts(const TokenCopy& copy, const TokenBlocks& blocks, std::vector<std::size_t> numbers)
      : copy_(copy), blocks_(blocks), numbers_(std::move(numbers)) {}

  /// After `made` of the parts were made: copies those that can be, in turn.
  void copy_early(std::size_t made) {
    const std::size_t before = results_.size();
    while (results_.size() < made) {
      std::optional<std::string> result = copy_.copy_part(blocks_, numbers_[results_.size()]);
      if (!result) break;
      results_.push_back(*result);
    }
    if (results_.size() > before) copy_.sync();
  }

  /// After all parts were made: copies those of `numbers` that were not, by all threads. Returns the text of digests.
  std::string copy_rest(const TokenBlocks& blocks, std::vector<std::size_t> numbers, ThreadPool& pool) {
    if (blocks.begin != blocks_.begin) results_.clear();
    const auto copied = std::span(numbers_).first(results_.size());  // in ascending order
    std::erase_if(numbers, [&](std::size_t number) { return std::ranges::binary_search(copied, number); });
    std::vector<std::string> rest(numbers.size());
    pool.parallel_for(std::ssize(numbers), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const std::optional<std::string> result = copy_.copy_part(blocks, numbers[at]);
      TRIREME_CHECK(result, IoError, "the places of all parts are not in {}: all ranks must see its folder",
                    copy_.target());
      rest[at] = *result;
    });
    copy_.sync();
    return fmt::format("{}{}", fmt::join(results_, ""), fmt::join(rest, ""));
  }

 private:
  const TokenCopy& copy_;
  TokenBlocks blocks_;  // those of a corpus without an end
  std::vector<std::size_t> numbers_;
  std::vector<std::string> results_;  // digests of the first ones
};

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
  const TokenCopy copy(files, paths, folder_path);
  const std::string frame_path = folder_path + "/" + frame_name;
  PartJoiner joiner(*files.corpora, paths, options.text);
  TokenBlocks blocks;
  collectively(comm, [&] {
    if (!leads) return;
    folder = files.work->lock_folder(folder_path, options.output, part_names);
    missing_text = fmt::format("{}", fmt::join(missing_of(*files.work, paths), " "));
    copy.create_files();
    // A frame of any great size shows where the tokens will lie. `copy_rest` checks it.
    constexpr std::int64_t great = 1 << 20;
    blocks = files.corpora->begin(frame_path, tokenizer, {.tokens = great})->blocks();
    blocks.tokens = std::numeric_limits<std::int64_t>::max();
  });
  missing_text = broadcast_text(comm, missing_text, 0);
  blocks = broadcast_blocks(comm, blocks);
  // Places the parts up to `end`, in their order.
  const auto place_parts = [&](std::size_t end) {
    while (joiner.parts() < end) {
      joiner.add_next();
      copy.place(joiner.parts() - 1, joiner.last_taken());
      copy.place(joiner.parts(), {.begin = joiner.tokens()});
    }
  };
  const auto first_missing = [&] {
    std::size_t part = joiner.parts();
    while (part < paths.size() && files.work->exists(paths[part])) ++part;
    return part;
  };

  const std::vector<std::size_t> own = ranges_of_rank(comm.rank(), comm.size(), ranges, numbers_in(missing_text));
  OwnParts own_parts(copy, blocks, own);
  collectively(comm, [&] {
    const std::string stop = folder_path + "/" + stop_name;
    std::vector<RangePart> parts;
    for (const std::size_t i : own) parts.push_back({&ranges[i], paths[i]});
    const auto all = leads ? std::make_unique<Progress>(*files.work, ranges, paths, progress) : nullptr;
    const auto begins_or_reads = [&](std::size_t number, std::int64_t bytes) {
      if (bytes == 0) return comm.size() == 1 || !files.work->exists(stop);
      if (all) all->update(own[number], bytes);
      return true;
    };
    const auto made = [&](std::size_t number) {
      if (leads) place_parts(first_missing());
      own_parts.copy_early(number + 1);
    };
    try {
      tokenize_ranges(files, parts, options.text, tokenizer, pool, {begins_or_reads, made});
    } catch (const Error&) {
      if (comm.size() > 1) files.work->touch(stop);
      throw;
    }
  });

  CorpusBuildReport report;
  std::unique_ptr<CorpusFrame> frame;
  const Timer timer;
  collectively(comm, [&] {
    if (!leads) return;
    progress(input_bytes, input_bytes);
    if (paths.size() > 1) log::info("joining {} parts", paths.size());
    place_parts(paths.size());
    report = joiner.report();
    check_report(report, options.text, input_bytes, *folder);
    frame = joiner.begin(frame_path, tokenizer);
    blocks = frame->blocks();
  });
  blocks = broadcast_blocks(comm, blocks);
  std::string own_digests;
  collectively(comm, [&] {
    std::vector<std::size_t> all(paths.size());
    std::iota(all.begin(), all.end(), 0);
    own_digests = own_parts.copy_rest(blocks, ranges_of_rank(comm.rank(), comm.size(), ranges, all), pool);
  });
  const std::vector<std::string> digests = gather_text(comm, own_digests, 0);
  collectively(comm, [&] {
    if (!leads) return;
    frame->finish(digests_of(blocks, digests));
    frame->copy_around_tokens(copy.target());
    files.work->commit(copy.target(), options.output);
    report.join_s = timer.elapsed_s();
    folder->keep_none();
  });
  return report;
}

}  // namespace trireme::prepare
