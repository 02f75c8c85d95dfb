#include "src/prepare/part_joiner.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace trireme::prepare {
namespace {

void add(std::span<std::byte> offsets, std::int64_t added) {
  for (std::size_t i = 0; i < offsets.size(); i += sizeof(added)) {
    std::int64_t offset = 0;
    std::memcpy(&offset, &offsets[i], sizeof(offset));
    offset += added;
    std::memcpy(&offsets[i], &offset, sizeof(offset));
  }
}

/// Returns 0 followed by the values of `next`.
CorpusContents::Next after_zero(CorpusContents::Next next) {
  return [next = std::move(next), at_start = true](std::span<std::byte> out) mutable {
    if (std::exchange(at_start, false)) {
      constexpr std::size_t offset_bytes = sizeof(std::int64_t);
      std::memset(out.data(), 0, offset_bytes);
      out = out.subspan(offset_bytes);
    }
    next(out);
  };
}

}  // namespace

void PartJoiner::add_next() {
  const auto part = corpora_.open_part(paths_[parts_.size()], PartSection::tokens, 0);
  JoinedPart joined{.part = part->summary(), .begin = contents_.tokens};
  const std::int64_t mark = options_.append_end_of_document ? 1 : 0;
  counts_ += joined.part.counts;
  if (joined.part.begins_inside_document && joined.part.ends > 0 && carried_ + joined.part.first_end == mark) {
    ++counts_.empty_documents;  // nor do earlier parts contain any of its tokens
    joined.first_token = mark;
    joined.first_end = 1;
  }
  const auto sentence_end = [&](std::int64_t i) { return joined.begin - joined.first_token + part->sentence_end(i); };
  const std::int64_t sentences = joined.part.sentence_ends;
  while (joined.first_sentence_end < sentences && sentence_end(joined.first_sentence_end) <= last_sentence_end_) {
    ++joined.first_sentence_end;
  }
  if (sentences > 0) last_sentence_end_ = std::max(last_sentence_end_, sentence_end(sentences - 1));
  contents_.sentences += joined.part.sentence_ends - joined.first_sentence_end;
  contents_.tokens += joined.part.tokens - joined.first_token;
  contents_.documents += joined.part.ends - joined.first_end;
  if (options_.chat) contents_.learned_ranges = contents_.learned_ranges.value_or(0) + joined.part.learned_ranges;
  contents_.max_id = std::max(contents_.max_id, joined.part.max_id);
  carried_ = joined.part.tokens - joined.part.last_end + (joined.part.ends == 0 ? carried_ : 0);
  parts_.push_back(joined);
}

CorpusBuildReport PartJoiner::report() const {
  return {.documents = contents_.documents,
          .tokens = contents_.tokens,
          .sentences = contents_.sentences,
          .counts = counts_};
}

std::unique_ptr<CorpusFrame> PartJoiner::begin(const std::string& path, const data::Tokenizer& tokenizer) {
  contents_.next_document_offsets = after_zero(section(PartSection::ends, &JoinedPart::first_end));
  contents_.next_sentence_offsets = after_zero(section(PartSection::sentence_ends, &JoinedPart::first_sentence_end));
  contents_.next_learned_ranges = section(PartSection::learned_ranges, nullptr);
  return corpora_.begin(path, tokenizer, contents_);
}

/// Returns the concatenated sections of the parts, each from its element `first` on, or all; ends count from the
/// beginning of the corpus.
CorpusContents::Next PartJoiner::section(PartSection section, std::int64_t JoinedPart::*first) const {
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

}  // namespace trireme::prepare
