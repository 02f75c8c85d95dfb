#include "io/corpus_writer.hpp"

#include <algorithm>
#include <cstring>

#include "io/corpus_format.hpp"
#include "io/h5/file.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t offsets_per_flush = 1 << 16;

/// Creates dataset `path` from all of `spool`, in parts of `part_bytes`; `check` sees each.
template <class Check>
void copy_spool(h5::File& file, const std::string& path, DType dtype, const Spool& spool, std::size_t part_bytes,
                const Check& check) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(dtype));
  h5::Dataset dataset = file.create_dataset(path, dtype, {spool.size_bytes() / element_bytes});
  std::vector<std::byte> part;
  for (std::int64_t begin = 0; begin < spool.size_bytes(); begin += static_cast<std::int64_t>(part.size())) {
    part.resize(std::min(part_bytes, static_cast<std::size_t>(spool.size_bytes() - begin)));
    spool.read(begin, part.data(), part.size());
    check(part);
    const auto count = static_cast<std::int64_t>(part.size()) / element_bytes;
    dataset.write_flat(begin / element_bytes, ConstTensorView(part.data(), dtype, {count}));
  }
}

void write_bytes(h5::File& file, const std::string& path, const std::string& bytes, const Shape& shape) {
  file.create_dataset(path, DType::uint8, shape)
      .write(ConstTensorView(reinterpret_cast<const std::uint8_t*>(bytes.data()), shape));
}

}  // namespace

CorpusWriter::CorpusWriter(const std::string& path, const data::Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      dtype_(token_type(tokenizer.vocabulary_size())),
      file_(path),
      tokens_(file_.path() + ".tokens"),
      offsets_(file_.path() + ".offsets") {
  block_.reserve(static_cast<std::size_t>(corpus_block_tokens) * size_of(dtype_));
}

void CorpusWriter::append(std::span<const std::int32_t> ids) {
  const std::size_t element_bytes = size_of(dtype_);
  while (!ids.empty()) {
    const std::size_t room = static_cast<std::size_t>(corpus_block_tokens) - block_.size() / element_bytes;
    const auto part = ids.first(std::min(room, ids.size()));
    const std::size_t old_size = block_.size();
    block_.resize(old_size + part.size() * element_bytes);
    std::byte* out = block_.data() + old_size;
    for (const std::int32_t id : part) {
      TRIREME_CHECK(id >= 0 && id < tokenizer_.vocabulary_size(), DataError,
                    "token {} is not in the vocabulary of {} ids", id, tokenizer_.vocabulary_size());
      greatest_id_ = std::max<std::int64_t>(greatest_id_, id);
      std::memcpy(out, &id, element_bytes);  // little-endian: the lower bytes come first
      out += element_bytes;
    }
    token_count_ += static_cast<std::int64_t>(part.size());
    ids = ids.subspan(part.size());
    if (block_.size() == static_cast<std::size_t>(corpus_block_tokens) * element_bytes) flush_block();
  }
}

void CorpusWriter::end_sentence() {
  if (token_count_ == sentence_begin_) return;
  if (!sentences_) sentences_.emplace(file_.path() + ".sentences");
  recent_sentences_.push_back(token_count_);
  sentence_begin_ = token_count_;
  ++sentence_count_;
  if (recent_sentences_.size() >= offsets_per_flush) flush_sentences();
}

void CorpusWriter::end_document() {
  TRIREME_CHECK(!sentences_ || sentence_begin_ == token_count_, DataError,
                "document {} does not end with a sentence, though others do", documents_ + 1);
  recent_offsets_.push_back(token_count_);
  document_begin_ = token_count_;
  ++documents_;
  if (recent_offsets_.size() >= offsets_per_flush) flush_offsets();
}

void CorpusWriter::flush_block() {
  if (block_.empty()) return;
  block_digests_ += digest(block_.data(), block_.size());
  content_.update(block_.data(), block_.size());
  tokens_.append(block_.data(), block_.size());
  block_.clear();
}

void CorpusWriter::flush_offsets() {
  offsets_.append(recent_offsets_.data(), recent_offsets_.size() * sizeof(recent_offsets_[0]));
  recent_offsets_.clear();
}

void CorpusWriter::flush_sentences() {
  sentences_->append(recent_sentences_.data(), recent_sentences_.size() * sizeof(recent_sentences_[0]));
  recent_sentences_.clear();
}

void CorpusWriter::finish() {
  flush_block();
  flush_offsets();
  if (sentences_) flush_sentences();
  const std::string payload = tokenizer_.payload();
  h5::File file = h5::File::create(file_.path());
  write_bytes(file, "/tokenizer_payload", payload, {static_cast<std::int64_t>(payload.size())});
  const auto blocks = static_cast<std::int64_t>(block_digests_.size() / digest_digits);
  write_bytes(file, "/block_digests", block_digests_, {blocks, static_cast<std::int64_t>(digest_digits)});

  const std::size_t block_bytes = static_cast<std::size_t>(corpus_block_tokens) * size_of(dtype_);
  std::size_t block = 0;
  copy_spool(file, "/tokens", dtype_, tokens_, block_bytes, [&](const std::vector<std::byte>& part) {
    TRIREME_CHECK(block_digests_.compare(block++ * digest_digits, digest_digits, digest(part.data(), part.size())) == 0,
                  IoError, "the temporary file beside {} gave back other bytes than were written", file_.target());
  });
  Digest table;
  const auto copy_offsets = [&](const std::string& path, const Spool& offsets) {
    copy_spool(file, path, DType::int64, offsets, offsets_per_flush * sizeof(std::int64_t),
               [&](const std::vector<std::byte>& part) {
                 content_.update(part.data(), part.size());
                 table.update(part.data(), part.size());
               });
  };
  copy_offsets("/document_offsets", offsets_);
  if (sentences_) copy_offsets("/sentence_offsets", *sentences_);
  table.update(block_digests_.data(), block_digests_.size());

  h5::Object root = file.root();
  root.write_attribute("format", corpus_format_name);
  root.write_attribute("format_version", corpus_format_version);
  root.write_attribute("tokenizer", tokenizer_.name());
  root.write_attribute("tokenizer_digest", tokenizer_.digest());
  root.write_attribute("vocabulary_size", tokenizer_.vocabulary_size());
  root.write_attribute("end_of_document", std::int64_t{tokenizer_.end_of_document()});
  root.write_attribute("greatest_id", greatest_id_);
  root.write_attribute("content_digest", content_.hex());
  root.write_attribute("table_digest", table.hex());
  file.close();
  file_.commit();
}

}  // namespace trireme::io
