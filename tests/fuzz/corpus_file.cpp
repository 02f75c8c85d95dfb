// Arbitrary bytes as the HDF5 file of a corpus or a view. HDF5's metadata have checksums, which reject most changes.
// Changes of tokens, offsets and texts reach our own checks. A finding whose innermost frames are in libhdf5 is a fault
// of that library (1.10.8 in Debian 12 has known ones).
#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace trireme;

/// A folder of this process with the source corpus of the seeds' views.
class Folder {
 public:
  Folder() {
    std::filesystem::create_directory(path_);
    const auto tokenizer = data::make_byte_tokenizer();
    io::CorpusWriter writer(path_ + "/trireme-fuzz-source.h5", *tokenizer);
    for (std::int32_t document = 0; document < 5; ++document) {
      writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(3 * document), 'a' + document));
      writer.end_document();
    }
    writer.finish();
  }
  ~Folder() { std::filesystem::remove_all(path_); }

 private:
  std::string path_ = fuzz::scratch_path("folder");
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const fuzz::InputFile file("folder/file.h5", fuzz::text_of(data, size));
  try {
    const io::CorpusStore store(file.path());
    std::int64_t tokens = 0;
    data::read_tokens(store, 0, store.token_count(),
                      [&](const auto& span, std::int64_t) { tokens += std::ssize(span); });
    fuzz::require(tokens == store.token_count(), "all tokens are handed out");
    store.verify();
    fuzz::require(store.info().max_id < store.info().vocabulary_size, "every token is an id");
  } catch (const DataError&) {
  } catch (const IoError&) {  // a view of a missing file
  }
  return 0;
}
