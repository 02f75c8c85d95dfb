#include "io/corpus/foreign_corpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "io/arrow/tables.hpp"
#include "io/corpus/prepare_files.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/mapped_file.hpp"
#include "src/base/check.hpp"
#include "src/prepare/text_reader.hpp"

namespace trireme::io {

namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr std::uint64_t version = 1;
constexpr std::uint8_t code_int32 = 4;
constexpr std::uint8_t code_uint16 = 8;
constexpr std::int64_t min_vocabulary_of_32_bits = 65500;
constexpr std::size_t header_bytes = 34;
constexpr std::size_t ids_at_a_time = 1 << 16;

/// Position of a sequence in PREFIX.bin.
struct BinExtent {
  std::size_t begin, tokens;
};

/// Returns the id of a token at this byte of a file. Throws DataError if it is not in the vocabulary.
template <class T>
std::int32_t id_of(T token, const std::string& path, std::size_t offset, const CorpusWriter& writer) {
  TRIREME_CHECK(std::in_range<std::int32_t>(token) && token >= 0 && token < writer.vocabulary_size(), DataError,
                "{}, byte {}: token {} is not in the vocabulary of {} ids", path, offset,
                static_cast<std::int64_t>(token), writer.vocabulary_size());
  return static_cast<std::int32_t>(token);
}

/// Appends tokens of type T in PREFIX.bin, which need not be aligned.
template <class T>
void append(const std::string& path, std::span<const std::byte> bin, BinExtent extent, CorpusWriter& writer) {
  std::vector<T> values;
  std::vector<std::int32_t> ids;
  for (std::size_t done = 0; done < extent.tokens; done += values.size()) {
    const std::size_t begin = extent.begin + done * sizeof(T);
    values.resize(std::min(ids_at_a_time, extent.tokens - done));
    std::memcpy(values.data(), bin.data() + begin, values.size() * sizeof(T));
    ids.clear();
    for (const T value : values) ids.push_back(id_of(value, path, begin + ids.size() * sizeof(T), writer));
    writer.append(ids);
  }
}

/// Type of the tokens, by its code in PREFIX.idx.
struct TokenType {
  std::uint8_t code;
  std::size_t size_bytes;
  void (*append)(const std::string& path, std::span<const std::byte> bin, BinExtent extent, CorpusWriter& writer);
};
constexpr TokenType token_types[] = {{1, 1, append<std::uint8_t>},
                                     {2, 1, append<std::int8_t>},
                                     {3, 2, append<std::int16_t>},
                                     {code_int32, 4, append<std::int32_t>},
                                     {code_uint16, 2, append<std::uint16_t>},
                                     {5, 8, append<std::int64_t>}};

/// PREFIX.idx, checked as it is read.
class Index {
 public:
  explicit Index(const std::string& path) : path_(path), mapping_(path), bytes_(path_, mapping_.bytes()) {
    const std::span<const std::byte> all = mapping_.bytes();
    TRIREME_CHECK(all.size() >= magic.size() && std::memcmp(all.data(), magic.data(), magic.size()) == 0, DataError,
                  "{} does not begin with MMIDIDX: it is not an index of Megatron-LM's{}", path_,
                  all.size() >= 6 && std::memcmp(all.data(), "TNTIDX", 6) == 0
                      ? " present format, but of its old one, TNTIDX; convert it with Megatron-LM first"
                      : "");
    const auto found_version = bytes_.at<std::uint64_t>(9, "the version");
    TRIREME_CHECK(found_version == version, DataError, "{}, byte 9: version {} is not 1", path_, found_version);
    const auto code = bytes_.at<std::uint8_t>(17, "the type of the tokens");
    type_ = std::ranges::find(token_types, code, &TokenType::code);
    TRIREME_CHECK(type_ != std::end(token_types), DataError,
                  "{}, byte 17: token type {} is not an integer type (1 to 5, or 8)", path_, code);
    sequences_ = bytes_.at<std::uint64_t>(18, "the number of sequences");
    const auto boundaries = bytes_.at<std::uint64_t>(26, "the number of documents");
    // Each sequence takes 12 bytes, each boundary 8: neither product overflows if the counts are below the size.
    TRIREME_CHECK(sequences_ <= all.size() && boundaries >= 1 && boundaries <= all.size() &&
                      all.size() == header_bytes + sequences_ * 12 + boundaries * 8,
                  DataError,
                  "{} has {} bytes, but {} sequences and {} document boundaries (bytes 18 and 26) take {} + 12 each + "
                  "8 each: it is cut short, damaged, or of multimodal data, which this program does not support",
                  path_, all.size(), sequences_, boundaries, header_bytes);
    documents_ = boundaries - 1;
    TRIREME_CHECK(boundary(0) == 0 && boundary(documents_) == sequences_, DataError,
                  "{}, byte {}: documents should go from sequence 0 to {}, but go from {} to {}", path_,
                  boundary_offset(0), sequences_, boundary(0), boundary(documents_));
    for (std::uint64_t d = 0; d < documents_; ++d) {
      const std::uint64_t begin = boundary(d);
      const std::uint64_t end = boundary(d + 1);
      TRIREME_CHECK(begin <= end && end <= sequences_, DataError,
                    "{}, byte {}: document {} ends with sequence {}, but begins with {}", path_, boundary_offset(d + 1),
                    d, end, begin);
      has_sentences_ = has_sentences_ || end - begin > 1;
    }
  }

  void check_unchanged() const { mapping_.check_unchanged(); }
  const TokenType& type() const { return *type_; }
  std::uint64_t documents() const { return documents_; }
  /// Returns whether any document has more than one sequence.
  bool has_sentences() const { return has_sentences_; }
  /// First sequence of document d, or one past the last of the last.
  std::uint64_t boundary(std::uint64_t d) const { return bytes_.at<std::uint64_t>(boundary_offset(d), "a document"); }
  std::size_t boundary_offset(std::uint64_t d) const { return header_bytes + sequences_ * 12 + d * 8; }

  /// Position of sequence i in a PREFIX.bin of `bin_bytes`.
  BinExtent extent(std::uint64_t i, std::size_t bin_bytes) const {
    const std::size_t size_offset = header_bytes + i * 4;
    const std::size_t pointer_offset = header_bytes + sequences_ * 4 + i * 8;
    const auto tokens = bytes_.at<std::int32_t>(size_offset, "a size");
    const auto begin = bytes_.at<std::int64_t>(pointer_offset, "a place");
    TRIREME_CHECK(tokens >= 0, DataError, "{}, byte {}: sequence {} has {} tokens", path_, size_offset, i, tokens);
    const std::size_t bytes = static_cast<std::size_t>(tokens) * type_->size_bytes;
    TRIREME_CHECK(
        begin >= 0 && bytes <= bin_bytes && static_cast<std::size_t>(begin) <= bin_bytes - bytes, DataError,
        "{}, byte {}: sequence {} of {} tokens should begin at byte {} of the .bin, which has {} bytes: one of "
        "the two is cut short or damaged",
        path_, pointer_offset, i, tokens, begin, bin_bytes);
    return {static_cast<std::size_t>(begin), static_cast<std::size_t>(tokens)};
  }

  /// Throws DataError unless the sequences, in any order, fill the .bin without a gap or an overlap.
  void check_filled(const std::string& bin_path, std::size_t bin_bytes) const {
    struct ByteRange {
      std::size_t begin, end;
    };
    std::vector<ByteRange> ranges;  // bytes of successive sequences: a single range if all are in order
    for (std::uint64_t i = 0; i < sequences_; ++i) {
      const BinExtent at = extent(i, bin_bytes);
      const std::size_t end = at.begin + at.tokens * type_->size_bytes;
      if (at.tokens == 0) continue;
      if (!ranges.empty() && ranges.back().end == at.begin) {
        ranges.back().end = end;
      } else {
        ranges.push_back({at.begin, end});
      }
    }
    std::ranges::sort(ranges, {}, &ByteRange::begin);
    std::size_t filled = 0;
    for (const ByteRange& range : ranges) {
      TRIREME_CHECK(range.begin >= filled, DataError, "{}: sequences overlap at byte {} of {}: the index is damaged",
                    path_, range.begin, bin_path);
      if (range.begin > filled) break;
      filled = range.end;
    }
    TRIREME_CHECK(filled == bin_bytes, DataError,
                  "{} has {} bytes, but no sequence of {} takes those from {} on: the two are not of one data set, or "
                  "the index is cut short",
                  bin_path, bin_bytes, path_, filled);
  }

 private:
  std::string path_;
  MappedFile mapping_;
  ByteReader bytes_;
  const TokenType* type_ = nullptr;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
  bool has_sentences_ = false;
};

constexpr std::size_t llmc_header_bytes = 256 * 4;
struct Kind {
  std::int32_t magic, version;
  std::size_t token_bytes;
};
constexpr Kind kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class T>
void append(const std::string& path, const ByteReader& bytes, std::size_t count, std::int32_t end_of_document,
            CorpusWriter& writer) {
  std::vector<std::int32_t> ids;
  const auto add = [&] {
    writer.append(ids);
    ids.clear();
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t offset = llmc_header_bytes + i * sizeof(T);
    const std::int32_t id = id_of(bytes.at<T>(offset, "a token"), path, offset, writer);
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

bool exists(const std::string& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

}  // namespace

void import_megatron(const std::string& prefix, CorpusWriter& writer, Sequences sequences) {
  const std::string bin_path = prefix + ".bin";
  regular_file_size(prefix + ".idx");
  regular_file_size(bin_path);
  const Index index(prefix + ".idx");
  const MappedFile bin(bin_path);
  index.check_filled(bin_path, bin.bytes().size());
  const bool are_sentences = sequences == Sequences::sentences || index.has_sentences();
  for (std::uint64_t d = 0; d < index.documents(); ++d) {
    const std::uint64_t begin = index.boundary(d);
    const std::uint64_t end = index.boundary(d + 1);
    for (std::uint64_t i = begin; i < end; ++i) {
      index.type().append(bin_path, bin.bytes(), index.extent(i, bin.bytes().size()), writer);
      if (are_sentences) writer.end_sentence();
    }
    writer.end_document();
  }
  index.check_unchanged();
  bin.check_unchanged();
}

void export_megatron(const CorpusStore& store, const std::string& prefix) {
  TRIREME_CHECK(!store.learned_ranges(), DataError,
                "{} holds conversations, of which a part is learned; Megatron-LM's format has no place for that. Give "
                "the lines of JSON to the other program",
                store.name());
  const bool narrow = store.info().vocabulary_size < min_vocabulary_of_32_bits;
  const std::int64_t size_of_token = narrow ? 2 : 4;
  const auto documents = store.document_offsets();
  // Sequences are the sentences, if any; a document without tokens then has none.
  const auto sequences = store.sentence_offsets().empty() ? documents : store.sentence_offsets();
  for (std::size_t i = 0; i + 1 < sequences.size(); ++i) {
    TRIREME_CHECK(sequences[i + 1] - sequences[i] <= INT32_MAX, DataError,
                  "sequence {} of {} has {} tokens; Megatron-LM's index counts to {}", i, store.name(),
                  sequences[i + 1] - sequences[i], INT32_MAX);
  }
  TemporaryFile bin(prefix + ".bin");
  TemporaryFile idx(prefix + ".idx");
  FileOutput tokens_out(bin.path());
  const auto write = [&](const auto& tokens) {
    for (const auto token : tokens) {
      if (narrow) {
        tokens_out.write(static_cast<std::uint16_t>(token));
      } else {
        tokens_out.write(static_cast<std::int32_t>(token));
      }
    }
  };
  VerifiedTokens(store).read(0, store.token_count(), write);
  tokens_out.close();

  FileOutput out(idx.path());
  out.write_bytes(std::as_bytes(std::span(magic)));
  out.write(version);
  out.write(narrow ? code_uint16 : code_int32);
  out.write(static_cast<std::uint64_t>(sequences.size() - 1));
  out.write(static_cast<std::uint64_t>(documents.size()));
  for (std::size_t i = 0; i + 1 < sequences.size(); ++i) {
    out.write(static_cast<std::int32_t>(sequences[i + 1] - sequences[i]));
  }
  for (std::size_t i = 0; i + 1 < sequences.size(); ++i) out.write(sequences[i] * size_of_token);
  std::size_t sequence = 0;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    if (sequences.data() == documents.data()) {
      sequence = d;
    } else {
      while (sequence + 1 < sequences.size() && sequences[sequence] < documents[d]) ++sequence;
    }
    out.write(static_cast<std::int64_t>(sequence));
  }
  out.close();
  store.check_unchanged();
  // An index of other tokens would be taken for theirs.
  TRIREME_CHECK(unlink((prefix + ".idx").c_str()) == 0 || errno == ENOENT, IoError, "cannot delete {}.idx: {}", prefix,
                std::strerror(errno));
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  sync_to_disk(folder.empty() ? "." : folder.string());
  bin.commit();
  idx.commit();
}

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
  TRIREME_CHECK(
      count >= 0 && bytes.size_bytes() == llmc_header_bytes + static_cast<std::size_t>(count) * kind->token_bytes,
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

std::string megatron_prefix(const std::string& path) {
  std::string prefix = path;
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);
  return exists(prefix + ".idx") ? prefix : "";
}

void check_is_hdf5(const std::string& path) {
  const bool is_pair = !megatron_prefix(path).empty();
  std::string head;
  if (!is_pair || exists(path)) {
    regular_file_size(path);  // its messages name the kind of another file
    head.resize(prepare::container_head_bytes);
    head.resize(prepare_files().inputs->open({path})->read(head.data(), head.size()));
  }
  if (head.starts_with("\x89HDF\r\n\x1A\n")) return;
  TRIREME_CHECK(!is_pair && !is_llmc(path), DataError,
                "{} holds another program's tokens, not a corpus. Make one from it: trireme corpus import {} <output> "
                "CORPUS.h5 <tokenizer> NAME",
                path, path);
  TRIREME_CHECK(!head.empty(), DataError, "{} is empty. Make a corpus from text by trireme corpus build", path);
  const std::string fault = prepare::container_fault(head);
  TRIREME_CHECK(fault.empty(), DataError,
                "{} is not a corpus, {}, and make a corpus of the result by trireme corpus build", path, fault);
  if (!prepare::is_text(head)) return;
  const bool is_table = find_table(path) != nullptr;
  const bool is_known = is_table || prepare::holds_json(path, prepare::TextFormat::by_name);
  const bool is_json = is_known || head.starts_with('{');
  throw DataError(
      "{0} is {1}, not a corpus. Make one from it: trireme corpus build <input> {0}{2} <output> CORPUS.h5 <tokenizer> "
      "NAME",
      path,
      is_table  ? "a table"
      : is_json ? "JSON lines"
                : "text",
      is_json && !is_known ? " <input_format> json" : "");
}

}  // namespace trireme::io
