// Arbitrary attributes and tables of a corpus in a valid HDF5 file: text of the attributes, then numbers, offsets,
// tokens. HDF5's reader is not fuzzed here: the library (1.10.8 in Debian 12) has known faults with damaged files.
// tests/io/corpus/corpus_test.cpp covers flipped bits and truncated files.
#include <algorithm>
#include <cstring>
#include <vector>

#include "io/corpus/corpus_store.hpp"
#include "io/h5/file.hpp"
#include "src/base/error.hpp"
#include "src/base/hash.hpp"
#include "tests/fuzz/target.hpp"

namespace {

template <class T>
std::vector<T> numbers(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace

// Input: a byte of choices; five lines: tokenizer, format, block digests, payload (| for its line ends), and four
// numbers; one byte, the number of offsets; the offsets, 8 bytes each; the tokens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  if (size == 0) return 0;
  const unsigned choice = data[0];
  std::string_view rest = fuzz::text_of(data + 1, size - 1);
  const std::string tokenizer(fuzz::take_until(rest, "\n"));
  const std::string format(fuzz::take_until(rest, "\n"));
  std::string digests(fuzz::take_until(rest, "\n"));
  std::string payload(fuzz::take_until(rest, "\n"));
  std::ranges::replace(payload, '|', '\n');
  const std::string figures(fuzz::take_until(rest, "\n"));
  if (tokenizer.find('\0') != tokenizer.npos || format.find('\0') != format.npos) return 0;
  long long vocabulary = 0, end_of_document = 0, max_id = 0, version = 0;
  std::sscanf(figures.c_str(), "%lld %lld %lld %lld", &vocabulary, &end_of_document, &max_id, &version);
  const std::size_t offset_bytes = rest.empty() ? 0 : static_cast<unsigned char>(rest[0]) % 32 * 8u;
  if (!rest.empty()) rest.remove_prefix(1);
  const auto offsets = numbers<std::int64_t>(rest.substr(0, offset_bytes));
  const std::string_view tokens = rest.substr(std::min(rest.size(), offset_bytes));
  if ((choice & 1) != 0) payload += '\n';
  const std::size_t token_bytes = (choice & 2) != 0 ? 4 : 2;
  const std::string_view whole_tokens = tokens.substr(0, tokens.size() / token_bytes * token_bytes);
  if ((choice & 4) != 0) digests = whole_tokens.empty() ? "" : digest(whole_tokens.data(), whole_tokens.size());

  const std::string path = fuzz::scratch_path("corpus.h5");
  std::remove(path.c_str());
  {
    io::h5::File file = io::h5::File::create(path);
    const auto add = [&](const char* name, const auto& values) {
      const Shape shape{static_cast<std::int64_t>(values.size())};
      const ConstTensorView view(values.data(), shape);
      file.create_dataset(name, view.dtype(), shape).write(view);
    };
    if (token_bytes == 2) {
      add("/tokens", numbers<std::uint16_t>(whole_tokens));
    } else {
      add("/tokens", numbers<std::uint32_t>(whole_tokens));
    }
    add("/document_offsets", offsets);
    if ((choice & 8) != 0) add("/sentence_offsets", offsets);
    add("/block_digests", numbers<std::uint8_t>(digests));
    add("/tokenizer_payload", numbers<std::uint8_t>(payload));
    Digest table;
    for (int i = 0; i < ((choice & 8) != 0 ? 2 : 1); ++i) {
      table.update(offsets.data(), offsets.size() * 8);
    }
    table.update(digests.data(), digests.size());
    io::h5::Object root = file.root();
    root.write_attribute("format", (choice & 16) != 0 ? io::corpus_format_name : format);
    root.write_attribute("format_version", std::int64_t{(choice & 16) != 0 ? io::corpus_format_version : version});
    root.write_attribute("tokenizer", tokenizer);
    root.write_attribute("tokenizer_digest", (choice & 32) != 0 ? digest(payload.data(), payload.size()) : format);
    root.write_attribute("vocabulary_size", std::int64_t{vocabulary});
    root.write_attribute("end_of_document", std::int64_t{end_of_document});
    root.write_attribute("greatest_id", std::int64_t{max_id});
    root.write_attribute("table_digest", (choice & 128) != 0 ? format : table.hex());
    file.close();
  }
  try {
    const io::CorpusStore store(path);
    for (std::int64_t d = 0; d < store.documents(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      fuzz::require(store.document_offsets()[i] <= store.document_offsets()[i + 1], "offsets do not fall");
    }
    store.verify();
    std::visit(
        [&](const auto& span) {
          fuzz::require(static_cast<std::int64_t>(span.size()) == store.token_count(), "offsets end with the tokens");
          for (const auto token : span) fuzz::require(token < store.info().vocabulary_size, "every token is an id");
        },
        store.tokens(0, store.token_count()));
  } catch (const DataError&) {
  }
  std::remove(path.c_str());
  return 0;
}
