// Headers of safetensors files, their index, and config.json. The first byte selects the kind.
#include "io/huggingface/config_json.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  try {
    if (data[0] % 3 == 0) {
      const fuzz::InputFile file("m.safetensors", bytes);
      io::SafetensorsSource source(file.path());
      fuzz::read_all(source);
    } else if (data[0] % 3 == 1) {
      // A header alone, for several sizes of the tensors' data.
      io::SafetensorsHeader header;
      for (const std::int64_t data_bytes : {0, 4, 16}) {
        try {
          header = io::parse_safetensors_header(bytes, data_bytes, "header");
          std::int64_t sum = 0;
          for (const io::SafetensorsEntry& entry : header.entries) sum += entry.end - entry.begin;
          fuzz::require(sum == data_bytes, "tensors cover all bytes");
        } catch (const DataError&) {
        }
      }
    } else {
      const io::HuggingFaceModel model = io::parse_config_json(std::string(bytes), "config.json");
      fuzz::require(&exchange::model_class_of(model.config, model.model_class->name) == model.model_class,
                    "a model that is read can be written");
    }
  } catch (const DataError&) {
  }
  return 0;
}
