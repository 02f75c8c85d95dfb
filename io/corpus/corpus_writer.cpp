#include "io/corpus/corpus_writer.hpp"

#include <algorithm>
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

void write_corpus_file(const std::string& path, const data::Tokenizer& tokenizer, const CorpusContents& contents) {
  h5::File file = h5::File::create(path);
  const std::string payload = tokenizer.payload();
  write_bytes(file, "/tokenizer_payload", payload, {static_cast<std::int64_t>(payload.size())});

  std::string block_digests;
  copy(file, "/tokens", token_type(tokenizer.vocabulary_size()), {contents.tokens}, corpus_block_tokens,
       contents.next_tokens,
       [&](const std::vector<std::byte>& block) { block_digests += digest(block.data(), block.size()); });
  Digest table;
  const auto copy_numbers = [&](const std::string& name, const Shape& shape, const CorpusContents::Next& next) {
    copy(file, name, DType::int64, shape, offsets_at_once, next,
         [&](const std::vector<std::byte>& chunk) { table.update(chunk.data(), chunk.size()); });
  };
  copy_numbers("/document_offsets", {contents.documents + 1}, contents.next_document_offsets);
  if (contents.sentences > 0) {
    copy_numbers("/sentence_offsets", {contents.sentences + 1}, contents.next_sentence_offsets);
  }
  if (contents.learned_ranges) {
    copy_numbers(learned_ranges_name, {*contents.learned_ranges, 2}, contents.next_learned_ranges);
  }
  const auto blocks = static_cast<std::int64_t>(block_digests.size() / digest_digits);
  write_bytes(file, "/block_digests", block_digests, {blocks, static_cast<std::int64_t>(digest_digits)});
  table.update(block_digests.data(), block_digests.size());

  write_corpus_header(file, corpus_format_name,
                      {.tokenizer = tokenizer.name(),
                       .tokenizer_digest = tokenizer.digest(),
                       .ids_digest = tokenizer.ids_digest(),
                       .tokenizer_payload = payload,
                       .content_digest = table.hex(),
                       .vocabulary_size = tokenizer.vocabulary_size(),
                       .end_of_document = tokenizer.end_of_document(),
                       .max_id = contents.max_id});
  file.close();
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
  std::size_t block = 0;
  const auto next_tokens = [&, next = reader_of(tokens_)](std::span<std::byte> out) mutable {
    next(out);
    TRIREME_CHECK(block_digests_.compare(block++ * digest_digits, digest_digits, digest(out.data(), out.size())) == 0,
                  IoError, "the temporary file beside {} does not hold the bytes that were written", file_.target());
  };
  CorpusContents contents{token_count_, max_id_, next_tokens, documents_, reader_of(offsets_.finish())};
  if (sentences_) {
    contents.sentences = sentence_count_;
    contents.next_sentence_offsets = reader_of(sentences_->finish());
  }
  if (learned_) {
    contents.learned_ranges = learned_count_;
    contents.next_learned_ranges = reader_of(learned_->finish());
  }
  write_corpus_file(file_.path(), tokenizer_, contents);
  file_.commit();
}

}  // namespace trireme::io
