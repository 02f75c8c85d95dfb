#include "io/corpus/corpus_file.hpp"

#include <algorithm>
#include <vector>

#include "io/corpus/corpus_format.hpp"
#include "io/h5/file.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t offsets_at_once = 1 << 16;

/// Creates dataset `path` of `count` elements that `next` fills in, `chunk` at a time; passes the bytes to `see`.
template <class See>
void copy(h5::File& file, const std::string& path, DType dtype, std::int64_t count, std::int64_t chunk,
          const CorpusContents::Next& next, const See& see) {
  h5::Dataset dataset = file.create_dataset(path, dtype, {count});
  std::vector<std::byte> bytes;
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    chunk = std::min(chunk, count - begin);
    bytes.resize(static_cast<std::size_t>(chunk) * size_of(dtype));
    next(bytes);
    see(bytes);
    dataset.write_rows(begin, ConstTensorView(bytes.data(), dtype, {chunk}));
  }
}

void write_bytes(h5::File& file, const std::string& path, const std::string& bytes, const Shape& shape) {
  file.create_dataset(path, DType::uint8, shape)
      .write(ConstTensorView(reinterpret_cast<const std::uint8_t*>(bytes.data()), shape));
}

}  // namespace

void write_corpus_file(const std::string& path, const data::Tokenizer& tokenizer, const CorpusContents& contents) {
  h5::File file = h5::File::create(path);
  const std::string payload = tokenizer.payload();
  write_bytes(file, "/tokenizer_payload", payload, {static_cast<std::int64_t>(payload.size())});

  std::string block_digests;
  copy(file, "/tokens", token_type(tokenizer.vocabulary_size()), contents.tokens, corpus_block_tokens,
       contents.next_tokens,
       [&](const std::vector<std::byte>& block) { block_digests += digest(block.data(), block.size()); });
  Digest table;
  const auto copy_offsets = [&](const std::string& name, std::int64_t count, const CorpusContents::Next& next) {
    copy(file, name, DType::int64, count, offsets_at_once, next,
         [&](const std::vector<std::byte>& chunk) { table.update(chunk.data(), chunk.size()); });
  };
  copy_offsets("/document_offsets", contents.documents + 1, contents.next_document_offsets);
  if (contents.sentences > 0) {
    copy_offsets("/sentence_offsets", contents.sentences + 1, contents.next_sentence_offsets);
  }
  const auto blocks = static_cast<std::int64_t>(block_digests.size() / digest_digits);
  write_bytes(file, "/block_digests", block_digests, {blocks, static_cast<std::int64_t>(digest_digits)});
  table.update(block_digests.data(), block_digests.size());

  h5::Object root = file.root();
  root.write_attribute("format", corpus_format_name);
  root.write_attribute("format_version", corpus_format_version);
  root.write_attribute("tokenizer", tokenizer.name());
  root.write_attribute("tokenizer_digest", tokenizer.digest());
  root.write_attribute("vocabulary_size", tokenizer.vocabulary_size());
  root.write_attribute("end_of_document", std::int64_t{tokenizer.end_of_document()});
  root.write_attribute("greatest_id", contents.max_id);
  root.write_attribute("table_digest", table.hex());
  file.close();
}

}  // namespace trireme::io
