#include "src/app/commands/commands.hpp"

#include <cstdio>

#include "src/app/commands/generate/prompt_batch.hpp"
#include "src/app/job/job.hpp"
#include "src/app/megatron/translation.hpp"

namespace trireme::app {
int generate_command(const CommandLine& line) {
  GenerateOptions o;
  Options options(line.command(), "Continues a text, or the texts of a file, with a trained model.");
  o.declare(options);
  const std::optional<megatron::Translation> translation = megatron::read(line, options);
  if (!translation) return 0;
  o.model.settle();
  o.check(options);

  Job job(line.environment(), options, o.model.grid, o.model.device);
  translation->log();
  const std::unique_ptr<SavedModel> saved =
      load_model(job, o.model, [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
        translation->check_model(config);
        execution.sequence_length = config.max_positions;
      });
  const std::unique_ptr<data::Tokenizer> tokenizer = prompt_tokenizer_of(saved->description, o.model);
  if (o.has_output()) {
    continue_prompts(job, *saved, *tokenizer, o);
    return 0;
  }
  const std::vector<std::int32_t> ids = tokenizer->encode_prompt(o.prompt);
  const std::vector<std::int32_t> continuation =
      infer::generate(*saved->model, *job.world, ids, o.max_new_tokens, tokenizer->end_of_document(), o.sampling);
  if (job.is_root()) {
    std::string text = o.prompt;
    tokenizer->decode(continuation, text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
  }
  return 0;
}

}  // namespace trireme::app
