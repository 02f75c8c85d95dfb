#include "io/corpus/part_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "io/json/json_text.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using prepare::PartSection;

constexpr std::uint64_t magic = 0x32726150656D6572;  // "remePar2"
const std::map<PartSection, const char*> digest_names = {{PartSection::tokens, "tokens_digest"},
                                                         {PartSection::ends, "ends_digest"},
                                                         {PartSection::sentence_ends, "sentences_digest"},
                                                         {PartSection::learned_ranges, "learned_digest"}};

std::string damage(const std::string& path) { return path + " is damaged; delete it and build again"; }

/// Copies all numbers and returns their digest.
std::string copy_numbers(SpooledNumbers& numbers, FileOutput& output) {
  const Spool& spool = numbers.finish();
  std::vector<std::byte> block;
  for (std::int64_t begin = 0; begin < spool.size_bytes(); begin += std::ssize(block)) {
    block.resize(std::min(std::size_t{1} << 19, static_cast<std::size_t>(spool.size_bytes() - begin)));
    spool.read(begin, block.data(), block.size());
    output.write_bytes(block);
  }
  return numbers.digest();
}

/// Calls `visit` with the name of each number in the summary, and the number.
template <class Summary, class Visit>
void for_each_member(Summary& summary, const Visit& visit) {
  visit("tokens", summary.tokens);
  visit("ends", summary.ends);
  visit("first_end", summary.first_end);
  visit("last_end", summary.last_end);
  visit("sentence_ends", summary.sentence_ends);
  visit("learned_ranges", summary.learned_ranges);
  visit("greatest_id", summary.max_id);
  visit("begins_inside_document", summary.begins_inside_document);
  visit("text_bytes", summary.counts.text_bytes);
  visit("empty_documents", summary.counts.empty_documents);
  visit("cut_runs", summary.counts.forced_cuts);
  visit("bad_lines", summary.counts.bad_lines);
  visit("learned_tokens", summary.counts.learned_tokens);
  visit("learned_stops", summary.counts.learned_stops);
  visit("first_bad_lines", summary.counts.first_bad_lines);
  visit("special_tokens", summary.counts.special_tokens);
}

class PartFileWriter final : public prepare::PartWriter {
 public:
  PartFileWriter(const std::string& path, std::int64_t vocabulary_size, bool begins_inside_document)
      : vocabulary_size_(vocabulary_size),
        file_(path),
        output_(file_.path()),
        ends_(file_.path() + ".ends"),
        sentence_ends_(file_.path() + ".sentences"),
        learned_(file_.path() + ".learned") {
    summary_.begins_inside_document = begins_inside_document;
  }

  void append(std::span<const std::int32_t> ids) override {
    packed_.clear();
    summary_.max_id = std::max(summary_.max_id, pack_tokens(ids, vocabulary_size_, packed_));
    output_.write_bytes(packed_);
    tokens_digest_.update(packed_.data(), packed_.size());
    summary_.tokens += static_cast<std::int64_t>(ids.size());
  }

  void end_document() override {
    if (summary_.ends++ == 0) summary_.first_end = summary_.tokens;
    summary_.last_end = summary_.tokens;
    ends_.push(summary_.tokens);
  }
  void end_sentence() override {
    const std::int64_t last = summary_.sentence_ends > 0 ? last_sentence_end_ : inside_first() ? -1 : 0;
    if (summary_.tokens == last) return;
    last_sentence_end_ = summary_.tokens;
    ++summary_.sentence_ends;
    sentence_ends_.push(summary_.tokens);
  }

  void learn(data::LearnedRange range) override {
    ++summary_.learned_ranges;
    learned_.push(range.begin);
    learned_.push(range.end);
  }

  const prepare::PartSummary& summary() const override { return summary_; }

  void finish(const prepare::CorpusTextCounts& counts) override {
    summary_.counts = counts;
    json summary{{"token_bytes", size_of(token_type(vocabulary_size_))}, {"tokens_digest", tokens_digest_.hex()}};
    summary["ends_digest"] = copy_numbers(ends_, output_);
    summary["sentences_digest"] = copy_numbers(sentence_ends_, output_);
    summary["learned_digest"] = copy_numbers(learned_, output_);
    for_each_member(summary_, [&](const char* name, const auto& value) { summary[name] = value; });
    std::string text = json_dump(summary);  // quotes faulty text, which need not be UTF-8
    text.insert(0, digest(text.data(), text.size()));
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
  SpooledNumbers learned_;
  std::vector<std::byte> packed_;
  Digest tokens_digest_;
  std::int64_t last_sentence_end_ = 0;
  prepare::PartSummary summary_;
};

class PartFileReader final : public prepare::PartReader {
 public:
  PartFileReader(std::string path, PartSection section, std::int64_t first)
      : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    TRIREME_CHECK(file_ && fstat(file_.get(), &status) == 0, IoError, "cannot open {}: {}", path_,
                  std::strerror(errno));
    struct {
      std::uint64_t summary_bytes;
      std::uint64_t magic;
    } tail{};
    const std::int64_t before_tail = status.st_size - static_cast<std::int64_t>(sizeof(tail));
    const std::string damaged = damage(path_);
    TRIREME_CHECK(before_tail >= 0, DataError, "{}", damaged);
    read_at(file_.get(), path_, &tail, sizeof(tail), before_tail);
    TRIREME_CHECK(tail.magic == magic && tail.summary_bytes <= static_cast<std::uint64_t>(before_tail), DataError, "{}",
                  damaged);
    std::string text(static_cast<std::size_t>(tail.summary_bytes), '\0');
    const std::int64_t payload_bytes = before_tail - static_cast<std::int64_t>(tail.summary_bytes);
    read_at(file_.get(), path_, text.data(), text.size(), payload_bytes);
    std::int64_t token_bytes = 0;
    const std::string_view summary = std::string_view(text).substr(std::min(text.size(), digest_digits));
    TRIREME_CHECK(text.starts_with(digest(summary.data(), summary.size())), DataError, "{}", damaged);
    try {
      const json value = json::parse(summary);
      for_each_member(summary_, [&](const char* name, auto& number) { value.at(name).get_to(number); });
      value.at("token_bytes").get_to(token_bytes);
      value.at(digest_names.at(section)).get_to(expected_digest_);
    } catch (const json::exception&) {
      throw DataError("{}", damaged);
    }
    constexpr std::int64_t end_bytes = sizeof(std::int64_t);
    // Sections in the order of PartSection: elements and bytes of each.
    const std::array<std::array<std::int64_t, 2>, 4> sizes = {{{summary_.tokens, token_bytes},
                                                               {summary_.ends, end_bytes},
                                                               {summary_.sentence_ends, end_bytes},
                                                               {summary_.learned_ranges, 2 * end_bytes}}};
    std::array<std::int64_t, 5> begins{};
    for (std::size_t i = 0; i < sizes.size(); ++i) begins[i + 1] = begins[i] + sizes[i][0] * sizes[i][1];
    TRIREME_CHECK(payload_bytes == begins.back(), DataError, "{}", damaged);
    sentences_begin_ = begins[static_cast<std::size_t>(PartSection::sentence_ends)];
    const auto number = static_cast<std::size_t>(section);
    position_ = begins[number];
    end_ = begins[number + 1];
    std::vector<std::byte> skipped(static_cast<std::size_t>(first * sizes[number][1]));
    PartFileReader::read(skipped);
  }

  const prepare::PartSummary& summary() const override { return summary_; }
  std::size_t read(std::span<std::byte> out) override {
    const std::size_t size_bytes = std::min(out.size(), static_cast<std::size_t>(end_ - position_));
    if (size_bytes == 0) return 0;
    read_at(file_.get(), path_, out.data(), size_bytes, position_);
    position_ += static_cast<std::int64_t>(size_bytes);
    digest_.update(out.data(), size_bytes);
    TRIREME_CHECK(position_ < end_ || digest_.hex() == expected_digest_, DataError, "{}", damage(path_));
    return size_bytes;
  }

  std::int64_t sentence_end(std::int64_t i) const override {
    std::int64_t end = 0;
    read_at(file_.get(), path_, &end, sizeof(end), sentences_begin_ + i * static_cast<std::int64_t>(sizeof(end)));
    return end;
  }

 private:
  std::string path_;
  Descriptor file_;
  prepare::PartSummary summary_;
  std::int64_t sentences_begin_ = 0;
  std::int64_t position_ = 0;  // in the file, of the next byte to read
  std::int64_t end_ = 0;       // end of the section
  Digest digest_;              // digest of the bytes read so far
  std::string expected_digest_;
};

}  // namespace

std::unique_ptr<prepare::PartWriter> create_part(const std::string& path, std::int64_t vocabulary_size,
                                                 bool begins_inside_document) {
  return std::make_unique<PartFileWriter>(path, vocabulary_size, begins_inside_document);
}

std::unique_ptr<prepare::PartReader> open_part(const std::string& path, PartSection section, std::int64_t first) {
  return std::make_unique<PartFileReader>(path, section, first);
}

}  // namespace trireme::io
