// Pickles, files of torch.save in both formats, and model files of llm.c. The first byte selects the kind.
#include "io/llmc/llmc_source.hpp"
#include "io/torch/torch_archive.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/zip_checksums.hpp"

namespace {

using namespace trireme;

/// Checks that every item is a node and every value has a description.
void walk(const io::PickleDocument& document, std::size_t size_bytes) {
  fuzz::require(document.size_bytes() <= size_bytes, "a pickle lies in its file");
  // A byte makes at most three values: a call has slots for its state and its contents.
  fuzz::require(document.nodes().size() <= 3 * size_bytes, "values are bounded by the bytes");
  for (std::uint32_t i = 0; i < document.nodes().size(); ++i) {
    const io::PickleValue value(document, i);
    fuzz::require(!value.description().empty(), "a value has a description");
    for (const std::uint32_t item : document.nodes()[i].items) {
      fuzz::require(item < document.nodes().size(), "items are values");
    }
    value.find("args");
  }
}

/// Reads every byte of the file's tensors.
void read_tensors(const io::TorchArchive& archive, const io::PickleDocument& document) {
  unsigned sum = 0;
  for (std::uint32_t i = 0; i < document.nodes().size(); ++i) {
    const io::PickleValue value(document, i);
    try {
      const io::StoredTensor tensor = archive.tensor(value, "a tensor");
      for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
      fuzz::require(static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype) == tensor.bytes.size(),
                    "a tensor has the bytes of its sizes");
    } catch (const DataError&) {
    }
  }
  volatile unsigned kept = sum;
  (void)kept;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  try {
    if (data[0] % 3 == 0) {
      const io::PickleDocument document(bytes, "pickle");
      walk(document, bytes.size());
    } else if (data[0] % 3 == 1) {
      const std::string content = test::without_checksums(std::string(bytes));  // checksums would end nearly every run
      const io::TorchArchive archive(std::as_bytes(std::span(content)), "file.pt");
      walk(archive.document(), bytes.size());
      read_tensors(archive, archive.document());
    } else {
      const fuzz::InputFile file("model.bin", bytes);
      io::LlmcSource source(file.path());
      fuzz::read_all(source);
    }
  } catch (const DataError&) {
  }
  return 0;
}
