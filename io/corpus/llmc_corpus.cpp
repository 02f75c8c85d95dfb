#include "io/corpus/llmc_corpus.hpp"

#include <algorithm>
#include <vector>

#include "io/posix/file.hpp"
#include "io/posix/mapped_file.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t header_bytes = 256 * 4;
struct Kind {
  std::int32_t magic, version;
  std::size_t token_bytes;
};
constexpr Kind kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class T>
void append(const std::string& path, const ByteReader& bytes, std::size_t count, std::int32_t end_of_document,
            CorpusWriter& writer) {
  constexpr std::size_t ids_at_a_time = 1 << 16;
  std::vector<std::int32_t> ids;
  const auto add = [&] {
    writer.append(ids);
    ids.clear();
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t offset = header_bytes + i * sizeof(T);
    const T token = bytes.at<T>(offset, "a token");
    TRIREME_CHECK(token < writer.vocabulary_size(), DataError,
                  "{}, byte {}: token {} is not in the vocabulary of {} ids", path, offset, token,
                  writer.vocabulary_size());
    const auto id = static_cast<std::int32_t>(token);
    if (id == end_of_document && i > 0) {
      add();
      writer.end_document();
    }
    ids.push_back(id);
    if (ids.size() == ids_at_a_time) add();
  }
  add();
  if (writer.document_tokens() > 0) writer.end_document();
}

}  // namespace

void import_llmc(const std::string& path, std::int32_t end_of_document, CorpusWriter& writer) {
  regular_file_size(path);
  const MappedFile mapping(path);
  const ByteReader bytes(path, mapping.bytes());
  const auto magic = bytes.at<std::int32_t>(0, "the magic number");
  const auto kind = std::ranges::find(kinds, magic, &Kind::magic);
  TRIREME_CHECK(kind != std::end(kinds), DataError,
                "{}, byte 0: {} is not the magic number of a token file of llm.c ({} or {})", path, magic,
                kinds[0].magic, kinds[1].magic);
  const auto version = bytes.at<std::int32_t>(4, "the version");
  TRIREME_CHECK(version == kind->version, DataError, "{}, byte 4: version {} is not {}", path, version, kind->version);
  const auto count = bytes.at<std::int32_t>(8, "the number of tokens");
  TRIREME_CHECK(count >= 0 && bytes.size_bytes() == header_bytes + static_cast<std::size_t>(count) * kind->token_bytes,
                DataError,
                "{} has {} bytes, but {} tokens (byte 8) of {} bytes and the header take another number: it is "
                "cut short or damaged",
                path, bytes.size_bytes(), count, kind->token_bytes);
  if (kind->token_bytes == 2) {
    append<std::uint16_t>(path, bytes, static_cast<std::size_t>(count), end_of_document, writer);
  } else {
    append<std::uint32_t>(path, bytes, static_cast<std::size_t>(count), end_of_document, writer);
  }
  mapping.check_unchanged();
}

bool is_llmc(const std::string& path) {
  if (regular_file_size(path) < 4) return false;
  const MappedFile mapping(path);
  const auto magic = ByteReader(path, mapping.bytes()).at<std::int32_t>(0, "the magic number");
  return std::ranges::find(kinds, magic, &Kind::magic) != std::end(kinds);
}

}  // namespace trireme::io
