#include "io/corpus/corpus_writer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/corpus/corpus_store.hpp"
#include "io/h5/file.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t offsets_at_once = 1 << 16;

/// Creates dataset `path` of this shape, [n] or [n, columns], whose rows `next` fills in, `chunk` at a time; passes the
/// bytes to `see`.
template <class See>
void copy(h5::File& file, const std::string& path, DType dtype, Shape shape, std::int64_t chunk,
          const CorpusContents::Next& next, const See& see) {
  h5::Dataset dataset = file.create_dataset(path, dtype, shape);
  std::vector<std::byte> bytes;
  const std::int64_t count = shape[0];
  for (std::int64_t begin = 0; begin < count; begin += shape[0]) {
    shape[0] = std::min(chunk, count - begin);
    bytes.resize(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
    next(bytes);
    see(bytes);
    dataset.write_rows(begin, ConstTensorView(bytes.data(), dtype, shape));
  }
}

/// Returns a function that reads the spool in order.
auto reader_of(const Spool& spool) {
  return [&spool, position = std::int64_t{0}](std::span<std::byte> out) mutable {
    spool.read(position, out.data(), out.size());
    position += static_cast<std::int64_t>(out.size());
  };
}

class CorpusFile final : public prepare::CorpusFrame {
 public:
  CorpusFile(const std::string& path, const data::Tokenizer& tokenizer, CorpusContents contents)
      : path_(path),
        tokenizer_(tokenizer),
        contents_(std::move(contents)),
        dtype_(token_type(tokenizer.vocabulary_size())),
        payload_(tokenizer.payload()),
        file_(h5::File::create(path)) {
    write_bytes(file_, "/tokenizer_payload", payload_, {static_cast<std::int64_t>(payload_.size())});
    tokens_at_ = file_.create_dataset("/tokens", dtype_, {contents_.tokens}).file_offset();
  }

  prepare::TokenBlocks blocks() const override {
    return {tokens_at_, static_cast<std::int64_t>(size_of(dtype_)), corpus_block_tokens, contents_.tokens};
  }

  void finish(const std::string& block_digests) override {
    Digest table;
    const auto copy_numbers = [&](const std::string& name, const Shape& shape, const CorpusContents::Next& next) {
      copy(file_, name, DType::int64, shape, offsets_at_once, next,
           [&](const std::vector<std::byte>& chunk) { table.update(chunk.data(), chunk.size()); });
    };
    copy_numbers("/document_offsets", {contents_.documents + 1}, contents_.next_document_offsets);
    if (contents_.sentences > 0) {
      copy_numbers("/sentence_offsets", {contents_.sentences + 1}, contents_.next_sentence_offsets);
    }
    if (contents_.learned_ranges) {
      copy_numbers(learned_ranges_name, {*contents_.learned_ranges, 2}, contents_.next_learned_ranges);
    }
    const auto blocks = static_cast<std::int64_t>(block_digests.size() / digest_digits);
    write_bytes(file_, "/block_digests", block_digests, {blocks, static_cast<std::int64_t>(digest_digits)});
    table.update(block_digests.data(), block_digests.size());

    write_corpus_header(file_, corpus_format_name,
                        {.tokenizer = tokenizer_.name(),
                         .tokenizer_digest = tokenizer_.digest(),
                         .ids_digest = tokenizer_.ids_digest(),
                         .tokenizer_payload = payload_,
                         .content_digest = table.hex(),
                         .vocabulary_size = tokenizer_.vocabulary_size(),
                         .end_of_document = tokenizer_.end_of_document(),
                         .max_id = contents_.max_id});
    file_.close();
  }

  void copy_around_tokens(const std::string& target) const override {
    const Descriptor from(open(path_.c_str(), O_RDONLY | O_CLOEXEC)), to(open(target.c_str(), O_WRONLY | O_CLOEXEC));
    TRIREME_CHECK(from && to, IoError, "cannot copy {} to {}: {}", path_, target, std::strerror(errno));
    const auto copy = [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::byte> bytes;
      for (; begin < end; begin += std::ssize(bytes)) {
        bytes.resize(static_cast<std::size_t>(std::min<std::int64_t>(end - begin, std::int64_t{1} << 20)));
        read_at(from.get(), path_, bytes.data(), bytes.size(), begin);
        write_at(to.get(), target, bytes.data(), bytes.size(), begin);
      }
    };
    copy(0, tokens_at_);
    copy(tokens_at_ + contents_.tokens * static_cast<std::int64_t>(size_of(dtype_)), regular_file_size(path_));
  }

 private:
  std::string path_;
  const data::Tokenizer& tokenizer_;
  CorpusContents contents_;
  DType dtype_;
  std::string payload_;
  h5::File file_;
  std::int64_t tokens_at_ = 0;
};

}  // namespace

std::int64_t pack_tokens(std::span<const std::int32_t> ids, std::int64_t vocabulary_size,
                         std::vector<std::byte>& packed) {
  const std::size_t element_bytes = size_of(token_type(vocabulary_size)), old_size = packed.size();
  packed.resize(old_size + ids.size() * element_bytes);
  std::byte* const out = packed.data() + old_size;
  // As unsigned numbers, negative ids are the greatest.
  std::uint32_t greatest = 0;
  for (const std::int32_t id : ids) greatest = std::max(greatest, static_cast<std::uint32_t>(id));
  TRIREME_CHECK(greatest < vocabulary_size, DataError, "token {} is not in the vocabulary of {} ids",
                static_cast<std::int32_t>(greatest), vocabulary_size);
  if (element_bytes == sizeof(std::int32_t)) {
    if (!ids.empty()) std::memcpy(out, ids.data(), ids.size_bytes());
  } else {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<std::uint16_t>(ids[i]);
      std::memcpy(out + i * sizeof(id), &id, sizeof(id));
    }
  }
  return ids.empty() ? -1 : static_cast<std::int32_t>(greatest);
}

void write_bytes(h5::File& file, const std::string& path, const std::string& bytes, const Shape& shape) {
  file.create_dataset(path, DType::uint8, shape)
      .write(ConstTensorView(reinterpret_cast<const std::uint8_t*>(bytes.data()), shape));
}

void write_corpus_header(h5::File& file, const char* format, const data::CorpusInfo& info) {
  h5::Object root = file.root();
  root.write_attribute("format", format);
  root.write_attribute("format_version", corpus_format_version);
  root.write_attribute("tokenizer", info.tokenizer);
  root.write_attribute("tokenizer_digest", info.tokenizer_digest);
  if (!info.ids_digest.empty()) root.write_attribute("ids_digest", info.ids_digest);
  root.write_attribute("vocabulary_size", info.vocabulary_size);
  root.write_attribute("end_of_document", info.end_of_document);
  root.write_attribute("greatest_id", info.max_id);
  root.write_attribute("table_digest", info.content_digest);
}

std::unique_ptr<prepare::CorpusFrame> begin_corpus_file(const std::string& path, const data::Tokenizer& tokenizer,
                                                        CorpusContents contents) {
  return std::make_unique<CorpusFile>(path, tokenizer, std::move(contents));
}

CorpusWriter::CorpusWriter(const std::string& path, const data::Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      dtype_(token_type(tokenizer.vocabulary_size())),
      file_(path),
      tokens_(file_.path() + ".tokens"),
      offsets_(file_.path() + ".offsets") {
  block_.reserve(static_cast<std::size_t>(corpus_block_tokens) * size_of(dtype_));
  offsets_.push(0);
}

void CorpusWriter::append(std::span<const std::int32_t> ids) {
  const std::size_t element_bytes = size_of(dtype_);
  while (!ids.empty()) {
    const std::size_t room = static_cast<std::size_t>(corpus_block_tokens) - block_.size() / element_bytes;
    const auto chunk = ids.first(std::min(room, ids.size()));
    max_id_ = std::max(max_id_, pack_tokens(chunk, tokenizer_.vocabulary_size(), block_));
    token_count_ += static_cast<std::int64_t>(chunk.size());
    ids = ids.subspan(chunk.size());
    if (block_.size() == static_cast<std::size_t>(corpus_block_tokens) * element_bytes) flush_block();
  }
}

void CorpusWriter::end_sentence() {
  if (token_count_ == sentence_begin_) return;
  if (!sentences_) {
    TRIREME_CHECK(document_begin_ == 0, DataError,
                  "document {} has sentences, but the documents before it have none. Try a corpus for each kind",
                  documents_ + 1);
    sentences_.emplace(file_.path() + ".sentences").push(0);
  }
  sentences_->push(token_count_);
  sentence_begin_ = token_count_;
  ++sentence_count_;
}

void CorpusWriter::end_document() {
  TRIREME_CHECK(!sentences_ || sentence_begin_ == token_count_, DataError,
                "document {} does not end with a sentence, but the documents before it do. Try a corpus for each kind",
                documents_ + 1);
  offsets_.push(token_count_);
  document_begin_ = token_count_;
  ++documents_;
}

void CorpusWriter::begin_learned_ranges() { learned_.emplace(file_.path() + ".learned"); }

void CorpusWriter::learn(data::LearnedRange range) {
  learned_->push(range.begin);
  learned_->push(range.end);
  ++learned_count_;
}

void CorpusWriter::flush_block() {
  if (block_.empty()) return;
  block_digests_ += digest(block_.data(), block_.size());
  tokens_.append(block_.data(), block_.size());
  block_.clear();
}

void CorpusWriter::finish() {
  flush_block();
  CorpusContents contents{token_count_, max_id_, documents_, reader_of(offsets_.finish())};
  if (sentences_) {
    contents.sentences = sentence_count_;
    contents.next_sentence_offsets = reader_of(sentences_->finish());
  }
  if (learned_) {
    contents.learned_ranges = learned_count_;
    contents.next_learned_ranges = reader_of(learned_->finish());
  }
  const auto corpus = begin_corpus_file(file_.path(), tokenizer_, std::move(contents));
  copy_tokens(corpus->blocks());
  corpus->finish(block_digests_);
  file_.commit();
}

/// Copies the spooled tokens into the file.
void CorpusWriter::copy_tokens(const prepare::TokenBlocks& blocks) const {
  const Descriptor file(open(file_.path().c_str(), O_WRONLY | O_CLOEXEC));
  TRIREME_CHECK(file, IoError, "cannot write {}: {}", file_.path(), std::strerror(errno));
  std::vector<std::byte> block;
  for (std::int64_t at = 0; at < blocks.tokens; at += blocks.block_tokens) {
    block.resize(static_cast<std::size_t>(std::min(blocks.block_tokens, blocks.tokens - at) * blocks.token_bytes));
    tokens_.read(at * blocks.token_bytes, block.data(), block.size());
    const auto digit = static_cast<std::size_t>(at / blocks.block_tokens) * digest_digits;
    TRIREME_CHECK(block_digests_.compare(digit, digest_digits, digest(block.data(), block.size())) == 0, IoError,
                  "the temporary file beside {} does not hold the bytes that were written", file_.target());
    write_at(file.get(), file_.path(), block.data(), block.size(), blocks.begin + at * blocks.token_bytes);
  }
}

}  // namespace trireme::io
