#include "io/huggingface/tokenizer_json.hpp"
#include "io/megatron/megatron_checkpoint.hpp"
#include "src/app/commands/checkpoint/import_input.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"

namespace trireme::app {

ImportInput open_megatron(const ImportOptions& options) {
  ImportInput result;
  io::MegatronCheckpoint checkpoint = io::open_megatron_checkpoint(options.input);
  const std::int64_t rows = checkpoint.layout.vocabulary_rows;
  result.config = checkpoint.model.config;
  if (!options.without_tokenizer) result.tokenizer = io::read_tokenizer_of(options.input, options.end_of_document);
  // Runs state the true number of tokens in newer versions alone: else it is the tokenizer's, or the option's.
  std::int64_t& vocabulary = result.config.vocabulary;
  if (options.vocabulary) {
    vocabulary = *options.vocabulary;
  } else if (checkpoint.model.vocabulary_is_padded && result.tokenizer) {
    vocabulary = result.tokenizer->vocabulary_size();
  }
  TRIREME_CHECK(vocabulary <= rows, ConfigError, "--vocab-size {} is more than the {} tokens of {}", vocabulary, rows,
                options.input);
  if (checkpoint.model.has_two_gelus) {
    log::info(
        "the head of masked tokens had the exact GELU, the layers its approximation by tanh; here both have the "
        "latter, "
        "which differs by at most 0.0005");
  }
  result.map = exchange::megatron_tensor_map(result.config, checkpoint.layout);
  result.rules.other_names = exchange::megatron_other_names;
  result.rules.is_ignored = [](const std::string& name) { return exchange::is_megatron_buffer(name); };
  result.source = std::move(checkpoint.source);
  result.attributes.put("import.format", "megatron");
  result.attributes.put("import.class", result.config.is_bert() ? "bert" : "gpt");
  result.attributes.put("import.vocabulary", rows);
  return result;
}

}  // namespace trireme::app
