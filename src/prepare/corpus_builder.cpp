#include "src/prepare/corpus_builder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>

#include "io/corpus/corpus_file.hpp"
#include "io/corpus/corpus_format.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::io {
namespace {

constexpr const char* lock_name = "lock";
constexpr const char* stop_name = "stop";      // there once a rank has failed: the others need not go on
constexpr const char* corpus_name = "corpus";  // while it is written
constexpr double look_interval_s = 1;

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// The folder of the parts, as rank 0 has it: locked, and gone in the end unless parts in it are of use later.
class PartsFolder {
 public:
  PartsFolder(const std::string& path, const std::string& output, const std::vector<InputPart>& parts) : path_(path) {
    make_folders(path_);
    lock_ = std::make_unique<FolderLock>(path_ + "/" + lock_name, output);
    std::set<std::string> wanted{lock_name};
    for (const InputPart& part : parts) wanted.insert(part.digest);
    for (const std::string& name : names_in(path_)) {
      if (!wanted.contains(name)) unlink((path_ + "/" + name).c_str());
    }
  }
  ~PartsFolder() {
    unlink((path_ + "/" + stop_name).c_str());
    const bool is_empty = !whole_ && names_in(path_).size() <= 1;
    if (!whole_ && !is_empty) log::info("{} keeps the parts that are done for the next build of this corpus", path_);
    if (whole_) {
      for (const std::string& name : names_in(path_)) {
        if (name != lock_name) unlink((path_ + "/" + name).c_str());
      }
    }
    lock_.reset();
    if (whole_ || is_empty) rmdir(path_.c_str());  // stays where another build has just taken it
  }
  PartsFolder(const PartsFolder&) = delete;
  PartsFolder& operator=(const PartsFolder&) = delete;

  /// The corpus is whole: no part is needed any more.
  void set_whole() { whole_ = true; }

 private:
  std::string path_;
  std::unique_ptr<FolderLock> lock_;
  bool whole_ = false;
};

void check_output(const CorpusBuildOptions& options) {
  for (const std::string& input : options.inputs) {
    std::error_code ignored;
    TRIREME_CHECK(!std::filesystem::equivalent(input, options.output, ignored), ConfigError,
                  "{} is both input and output", options.output);
  }
  const TemporaryFile probe(options.output);
}

/// The parts that rank `rank` makes, of those that are not there yet: to each the next largest, so that all have about
/// the same number of bytes.
std::vector<std::size_t> share_of(int rank, int ranks, const std::vector<InputPart>& parts,
                                  std::vector<std::size_t> missing) {
  std::ranges::stable_sort(missing, std::greater(), [&](std::size_t i) { return parts[i].bytes; });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<std::size_t> share;
  for (const std::size_t i : missing) {
    const auto least = std::ranges::min_element(loads);
    *least += parts[i].bytes;
    if (least - loads.begin() == rank) share.push_back(i);
  }
  std::ranges::sort(share);
  return share;
}

/// Progress of all ranks together: the bytes this rank has read, and the finished parts in the folder.
class Progress {
 public:
  Progress(const std::vector<InputPart>& parts, const std::vector<std::string>& paths, const CorpusProgress& report)
      : parts_(parts), paths_(paths), report_(report), done_(parts.size(), false) {
    for (const InputPart& part : parts) total_ += part.bytes;
    look();
    report_(whole_bytes_, total_);
  }
  void update(std::size_t own_part, std::int64_t bytes) {
    if (since_look_.elapsed_s() > look_interval_s) look();
    report_(std::min(total_, whole_bytes_ + (done_[own_part] ? 0 : bytes)), total_);
  }
  void look() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (done_[i] || !exists(paths_[i])) continue;
      done_[i] = true;
      whole_bytes_ += parts_[i].bytes;
    }
    since_look_ = Timer();
  }

 private:
  const std::vector<InputPart>& parts_;
  const std::vector<std::string>& paths_;
  const CorpusProgress& report_;
  std::vector<bool> done_;
  std::int64_t whole_bytes_ = 0;
  std::int64_t total_ = 0;
  Timer since_look_;
};

/// Range of a part that goes into the corpus.
struct Share {
  CorpusPart::Summary part;
  std::int64_t first_token = 0;  // 1 where an empty document's end-of-document token is left out
  std::int64_t first_end = 0;    // 1 where that document's end is
  std::int64_t first_sentence_end = 0;
  std::int64_t begin = 0;  // in the corpus
};

/// Joins parts into one corpus, in their order.
class Joiner {
 public:
  Joiner(const std::vector<std::string>& paths, const CorpusTextOptions& options) : paths_(paths) {
    std::int64_t carried = 0;  // tokens of the document that goes on in the next part
    std::int64_t last_sentence_end = 0;
    for (const std::string& path : paths) {
      const CorpusPart part(path);
      Share share{.part = part.summary(), .begin = contents_.tokens};
      const std::int64_t mark = options.append_end_of_document ? 1 : 0;
      report_.counts += share.part.counts;
      if (share.part.begins_inside_document && share.part.ends > 0 && carried + share.part.first_end == mark) {
        ++report_.counts.empty_documents;  // only here it is known that nothing came before
        share.first_token = mark;
        share.first_end = 1;
      }
      const auto sentence_end = [&](std::int64_t i) { return share.begin - share.first_token + part.sentence_end(i); };
      const std::int64_t sentences = share.part.sentence_ends;
      while (share.first_sentence_end < sentences && sentence_end(share.first_sentence_end) <= last_sentence_end) {
        ++share.first_sentence_end;
      }
      if (sentences > 0) last_sentence_end = std::max(last_sentence_end, sentence_end(sentences - 1));
      contents_.sentences += share.part.sentence_ends - share.first_sentence_end;
      contents_.tokens += share.part.tokens - share.first_token;
      contents_.documents += share.part.ends - share.first_end;
      contents_.max_id = std::max(contents_.max_id, share.part.max_id);
      carried = share.part.tokens - share.part.last_end + (share.part.ends == 0 ? carried : 0);
      shares_.push_back(share);
    }
    report_.tokens = contents_.tokens;
    report_.documents = contents_.documents;
    report_.sentences = contents_.sentences;
  }

  const CorpusBuildReport& report() const { return report_; }

  void write(const std::string& path, const data::Tokenizer& tokenizer) {
    const auto element_bytes = static_cast<std::int64_t>(size_of(token_type(tokenizer.vocabulary_size())));
    contents_.next_tokens =
        reader(CorpusPart::Section::tokens, [=](const Share& share) { return share.first_token * element_bytes; });
    contents_.next_document_offsets =
        offsets(reader(CorpusPart::Section::ends, [](const Share& share) { return share.first_end * offset_bytes; }));
    contents_.next_sentence_offsets = offsets(reader(CorpusPart::Section::sentence_ends, [](const Share& share) {
      return share.first_sentence_end * offset_bytes;
    }));
    write_corpus_file(path, tokenizer, contents_);
  }

 private:
  static constexpr std::int64_t offset_bytes = sizeof(std::int64_t);

  /// Gives a section of one part after another, each without its first `skipped(share)` bytes; ends count from the
  /// beginning of the corpus.
  template <class Skipped>
  CorpusContents::Next reader(CorpusPart::Section section, const Skipped& skipped) const {
    return [this, section, skipped, number = std::size_t{0},
            part = std::shared_ptr<CorpusPart>()](std::span<std::byte> out) mutable {
      while (!out.empty()) {
        const Share& share = shares_[number];
        if (!part) {
          part = std::make_shared<CorpusPart>(paths_[number], section);
          std::vector<std::byte> first(static_cast<std::size_t>(skipped(share)));
          part->read(first);
        }
        const std::size_t got = part->read(out);
        if (section != CorpusPart::Section::tokens) add(out.first(got), share.begin - share.first_token);
        out = out.subspan(got);
        if (got == 0) {
          part.reset();
          ++number;
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

  /// Gives 0 and then what `next` gives.
  static CorpusContents::Next offsets(CorpusContents::Next next) {
    return [next = std::move(next), at_start = true](std::span<std::byte> out) mutable {
      if (std::exchange(at_start, false)) {
        std::memset(out.data(), 0, offset_bytes);
        out = out.subspan(offset_bytes);
      }
      next(out);
    };
  }

  const std::vector<std::string>& paths_;
  std::vector<Share> shares_;
  CorpusContents contents_;
  CorpusBuildReport report_;
};

std::string numbers_text(const std::vector<std::size_t>& numbers) { return fmt::format("{}", fmt::join(numbers, " ")); }

std::vector<std::size_t> numbers_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::size_t> numbers;
  for (std::size_t number = 0; stream >> number;) numbers.push_back(number);
  return numbers;
}

}  // namespace

CorpusBuildReport build_corpus(const CorpusBuildOptions& options, const data::Tokenizer& tokenizer, ThreadPool& pool,
                               Communicator& comm, const CorpusProgress& progress) {
  const bool leads = comm.rank() == 0;
  const std::string folder_path = options.output + ".parts";
  std::vector<InputPart> parts;
  std::vector<std::string> paths;
  collectively(comm, [&] {
    if (leads) check_output(options);
    const std::string purpose =
        fmt::format("trireme corpus part 2\ntokenizer {}\nappend {}\nskip {}\nsentences {}", tokenizer.digest(),
                    options.text.append_end_of_document, options.text.skip_bad_lines, options.text.split_sentences);
    parts = cut_input(options.inputs, options.text.reader, options.part_bytes, purpose);
    for (const InputPart& part : parts) paths.push_back(folder_path + "/" + part.digest);
  });
  check_same_everywhere(comm, "the input, its names, sizes and times", fmt::format("{}", fmt::join(paths, "\n")));

  std::unique_ptr<PartsFolder> folder;
  std::string missing_text;
  collectively(comm, [&] {
    if (!leads) return;
    folder = std::make_unique<PartsFolder>(folder_path, options.output, parts);
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!exists(paths[i])) missing.push_back(i);
    }
    if (missing.size() < parts.size()) {
      log::info("{} of {} parts are there from an earlier build", parts.size() - missing.size(), parts.size());
    }
    missing_text = numbers_text(missing);
  });
  missing_text = broadcast_text(comm, missing_text, 0);

  collectively(comm, [&] {
    const std::string stop = folder_path + "/" + stop_name;
    std::unique_ptr<Progress> all = leads ? std::make_unique<Progress>(parts, paths, progress) : nullptr;
    try {
      for (const std::size_t i : share_of(comm.rank(), comm.size(), parts, numbers_in(missing_text))) {
        if (comm.size() > 1 && exists(stop)) return;
        tokenize_part(parts[i], options.text, tokenizer, pool, paths[i], [&](std::int64_t bytes) {
          if (all) all->update(i, bytes);
        });
        if (all) all->look();
      }
    } catch (const Error&) {
      if (comm.size() > 1) close(open(stop.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
      throw;
    }
  });

  CorpusBuildReport report;
  collectively(comm, [&] {
    if (!leads) return;
    if (parts.size() > 1) log::info("joining {} parts", parts.size());
    Joiner joiner(paths, options.text);
    report = joiner.report();
    std::int64_t input_bytes = 0;
    for (const InputPart& part : parts) input_bytes += part.bytes;
    progress(input_bytes, input_bytes);
    TRIREME_CHECK(report.counts.bad_lines <= options.text.max_bad_lines, DataError,
                  "{} bad lines, more than the {} that --max-bad-lines allows, the first: {}", report.counts.bad_lines,
                  options.text.max_bad_lines, report.counts.first_bad_lines.front());
    if (report.tokens == 0) folder->set_whole();  // such parts are of no use to anybody
    TRIREME_CHECK(report.tokens > 0, DataError, "the input of {} bytes holds no text: {} empty documents, {} bad lines",
                  input_bytes, report.counts.empty_documents, report.counts.bad_lines);
    const std::string corpus = folder_path + "/" + corpus_name;
    const Timer timer;
    joiner.write(corpus, tokenizer);
    sync_to_disk(corpus);
    rename_durably(corpus, options.output);
    report.join_s = timer.elapsed_s();
    folder->set_whole();
  });
  return report;
}

}  // namespace trireme::io
