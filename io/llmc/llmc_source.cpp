#include "io/llmc/llmc_source.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/check.hpp"
#include "src/exchange/llmc.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t header_numbers = 256;
constexpr std::int32_t model_magic = 20240326;
constexpr std::int32_t llama_magic = 20240803;
constexpr std::int32_t max_extent = 1 << 22;  // bytes of all tensors stay below 2^63

model::ModelConfig config_of(const std::array<std::int32_t, header_numbers>& header, const std::string& path) {
  constexpr const char* fields[] = {"positions", "tokens", "layers", "heads", "channels", "padded tokens"};
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const std::int32_t value = header[i + 2];
    TRIREME_CHECK(value > 0 && value <= max_extent, DataError,
                  "{}, byte {}: it states {} {}, but the number must be 1 to {}: the file is damaged", path,
                  4 * (i + 2), value, fields[i], max_extent);
  }
  model::ModelConfig config;
  config.max_positions = header[2];
  config.vocabulary = header[3];
  config.layers = header[4];
  config.heads = header[5];
  config.hidden = header[6];
  config.ffn_hidden = 4 * config.hidden;
  TRIREME_CHECK(header[7] >= header[3], DataError, "{}, byte 28: {} rows are fewer than the {} tokens", path, header[7],
                header[3]);
  try {
    model::validate(config);
  } catch (const ConfigError& error) {
    throw DataError("{} describes a model that cannot be imported:\n  {}", path, error.what());
  }
  return config;
}

}  // namespace

LlmcSource::LlmcSource(std::string path) : path_(std::move(path)) {
  const std::int64_t size_bytes = regular_file_size(path_);
  file_ = Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  TRIREME_CHECK(file_, IoError, "cannot open {}: {}", path_, std::strerror(errno));
  std::array<std::int32_t, header_numbers> header;
  TRIREME_CHECK(
      size_bytes >= static_cast<std::int64_t>(sizeof header), DataError,
      "{} has {} bytes, fewer than the header of a model file of llm.c: it was cut off, or is another kind of file",
      path_, size_bytes);
  read_at(file_.get(), path_, header.data(), sizeof header, 0);
  TRIREME_CHECK(header[0] != llama_magic, DataError,
                "{} has the magic number of llm.c's Llama 3, of which GPT-2s alone are read. Import the model of "
                "transformers that it was made from",
                path_);
  TRIREME_CHECK(header[0] == model_magic, DataError,
                "{}, byte 0: {} is not the magic number of a model file of llm.c, {}", path_, header[0], model_magic);
  TRIREME_CHECK(header[1] == 3 || header[1] == 5, DataError,
                "{}, byte 4: version {} is neither 3 (fp32) nor 5 (bf16). Write the file with a newer train_gpt2.py",
                path_, header[1]);
  const DType dtype = header[1] == 3 ? DType::fp32 : DType::bf16;
  config_ = config_of(header, path_);
  padded_vocabulary_ = header[7];
  auto end = static_cast<std::int64_t>(sizeof header);
  for (const exchange::MappedTensor& tensor : exchange::llmc_tensor_map(config_, padded_vocabulary_).tensors) {
    tensors_.push_back({tensor.name, dtype, tensor.shape});
    begins_.push_back(end);
    end += tensor.shape.numel() * static_cast<std::int64_t>(size_of(dtype));
  }
  TRIREME_CHECK(end == size_bytes, DataError, "{} has {} bytes, but the model that it states takes {}: it is {}", path_,
                size_bytes, end, size_bytes < end ? "cut off" : "damaged");
}

void LlmcSource::read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) {
  const auto element = static_cast<std::int64_t>(size_of(tensors_[tensor].dtype));
  read_at(file_.get(), path_, out.data(), out.size(), begins_[tensor] + first * element);
}

}  // namespace trireme::io
