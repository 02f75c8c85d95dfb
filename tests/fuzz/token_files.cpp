// Token files of other programs. The first byte selects llm.c's file, or Megatron-LM's: PREFIX.idx, whose size is the
// second byte, then PREFIX.bin.
#include "io/corpus/foreign_corpus.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  if (size < 2) return 0;
  static const auto tokenizer = data::make_null_tokenizer(70'000, 0);
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  io::CorpusWriter writer(fuzz::scratch_path("imported.h5"), *tokenizer);
  try {
    if (data[0] % 2 == 0) {
      const fuzz::InputFile file("llmc.bin", bytes);
      io::is_llmc(file.path());
      io::import_llmc(file.path(), 0, writer);
    } else {
      const fuzz::InputFile index("m.idx", bytes.substr(0, data[1]));
      const fuzz::InputFile tokens("m.bin", bytes.substr(std::min<std::size_t>(bytes.size(), data[1])));
      io::import_megatron(fuzz::scratch_path("m"), writer);
    }
  } catch (const DataError&) {
  }
  return 0;
}
