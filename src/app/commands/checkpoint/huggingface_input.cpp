#include <algorithm>

#include "io/huggingface/config_json.hpp"
#include "io/huggingface/tokenizer_json.hpp"
#include "io/posix/folder.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "src/app/commands/checkpoint/import_input.hpp"
#include "src/base/check.hpp"
#include "src/exchange/model_class.hpp"

namespace trireme::app {

ImportInput open_huggingface(const ImportOptions& options) {
  ImportInput result;
  const std::string& input = options.input;
  TRIREME_CHECK(io::is_there(input), DataError, "there is no {}", input);
  const std::size_t slash = input.rfind('/');
  const std::string folder = io::is_folder(input + "/.") ? input : slash == input.npos ? "." : input.substr(0, slash);
  const io::HuggingFaceModel model = io::read_config_json(folder + "/config.json");
  result.source = std::make_unique<io::SafetensorsSource>(input);
  result.config = model.config;
  result.end_of_text = model.end_of_text;
  if (!options.without_tokenizer) result.tokenizer = io::read_tokenizer_of(folder, options.end_of_document);

  model::ModelConfig& config = result.config;
  const std::int64_t rows = config.vocabulary;
  config.vocabulary = options.vocabulary.value_or(rows);
  TRIREME_CHECK(config.vocabulary <= rows, ConfigError, "--vocab-size {} is more than the {} tokens of {}",
                config.vocabulary, rows, input);
  // BERT's tokenizer adds [BOS] and [EOS] to the vocabulary.
  if (config.is_bert() && result.tokenizer) {
    config.vocabulary = std::max(config.vocabulary, result.tokenizer->vocabulary_size());
  }
  result.map = exchange::tensor_map(*model.model_class, config, {.rotary = model.rotary, .vocabulary_rows = rows});
  result.rules.other_names = [model_class = model.model_class](const std::string& name) {
    return exchange::other_names(*model_class, name);
  };
  result.rules.is_ignored = exchange::is_buffer;
  result.attributes.put("import.format", "huggingface");
  result.attributes.put("import.class", model.model_class->name);
  result.attributes.put("import.vocabulary", rows);
  return result;
}

}  // namespace trireme::app
