#include "io/huggingface/tokenizer_json.hpp"
#include "io/llmc/llmc_source.hpp"
#include "src/app/commands/checkpoint/import_input.hpp"
#include "src/base/check.hpp"
#include "src/exchange/llmc.hpp"

namespace trireme::app {

ImportInput open_llmc(const ImportOptions& options) {
  ImportInput result;
  const std::string& input = options.input;
  auto source = std::make_unique<io::LlmcSource>(input);
  const std::int64_t rows = source->padded_vocabulary();
  result.config = source->config();
  result.config.vocabulary = options.vocabulary.value_or(result.config.vocabulary);
  TRIREME_CHECK(result.config.vocabulary <= rows, ConfigError, "--vocab-size {} is more than the {} tokens of {}",
                result.config.vocabulary, rows, input);
  if (!options.without_tokenizer) {
    const std::size_t slash = input.rfind('/');
    result.tokenizer =
        io::read_tokenizer_of(slash == input.npos ? "." : input.substr(0, slash), options.end_of_document);
  }
  result.map = exchange::llmc_tensor_map(result.config, rows);
  result.source = std::move(source);
  result.attributes.put("import.format", "llm.c");
  result.attributes.put("import.class", "gpt2");
  result.attributes.put("import.vocabulary", rows);
  return result;
}

}  // namespace trireme::app
